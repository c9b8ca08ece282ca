//! `telegrad top`: shows a running world in the terminal.

mod columns;
mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};

use crate::watch::{Snapshot, Watch, WorldSelector};
use crate::{Error, fail};
use screen::Screen;

/// Show the workers of a running world in the terminal.
///
/// Shows calls in flight, rates, latencies, bytes, queues, references and autograd contexts of every worker, the oldest calls, and the
/// chains of calls that wait for each other. The arrow keys scroll through the workers.
///
/// Finds the user's own workers on this machine that `telegrad run` has started or that have TELEGRAD_STATUS in their environment.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    world: WorldSelector,

    /// Time between updates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::run::seconds)]
    interval: Duration,
}

/// The shortest and the longest time between updates.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// The longest delay until keys, signals and snapshots are handled.
const POLL: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &Args) -> ExitCode {
    match show(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

fn show(args: &Args) -> Result<(), Error> {
    let mut watch = Watch::new(args.world);
    // Before the terminal changes its mode, so that an error stays readable.
    let first = watch.snapshot()?;
    if !std::io::stdout().is_terminal() {
        return Err(
            "`telegrad top` needs a terminal as its standard output; `telegrad doctor` works without one"
                .into(),
        );
    }
    // After these signals, the terminal is restored. SIGHUP ends the process: its terminal is closed.
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let interval = args.interval.clamp(INTERVALS.0, INTERVALS.1);
    let (sender, snapshots) = sync_channel(1);
    let mut terminal = ratatui::try_init()?;
    // On a thread of its own, so that keys work while a worker does not answer.
    thread::spawn(move || take_snapshots(watch, interval, &sender));
    let result = draw(&mut terminal, first, &snapshots, &ended);
    ratatui::restore();
    result
}

/// Takes snapshots until the receiver is dropped.
fn take_snapshots(mut watch: Watch, interval: Duration, sender: &SyncSender<Result<Snapshot, String>>) {
    loop {
        thread::sleep(interval);
        if sender
            .send(watch.snapshot().map_err(|error| error.to_string()))
            .is_err()
        {
            return;
        }
    }
}

fn draw(
    terminal: &mut ratatui::DefaultTerminal,
    first: Snapshot,
    snapshots: &Receiver<Result<Snapshot, String>>,
    ended: &AtomicBool,
) -> Result<(), Error> {
    let mut screen = Screen::default();
    screen.update(Ok(first));
    let mut is_changed = true;
    while !ended.load(SeqCst) {
        if is_changed {
            terminal.draw(|frame| screen.draw(frame))?;
        }
        is_changed = false;
        if event::poll(POLL)? {
            is_changed = true;
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && !handle_key(&mut screen, key)
            {
                return Ok(());
            }
        }
        while let Ok(snapshot) = snapshots.try_recv() {
            screen.update(snapshot);
            is_changed = true;
        }
    }
    Ok(())
}

/// Handles a key; returns whether to continue.
fn handle_key(screen: &mut Screen, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Up => screen.scroll(-1),
        KeyCode::Down => screen.scroll(1),
        KeyCode::PageUp => screen.scroll(-10),
        KeyCode::PageDown => screen.scroll(10),
        KeyCode::Home => screen.scroll(isize::MIN),
        KeyCode::End => screen.scroll(isize::MAX),
        _ => {}
    }
    true
}
