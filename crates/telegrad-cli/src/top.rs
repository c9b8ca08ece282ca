//! `telegrad top`: a world while it runs, in the terminal.

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

use crate::watch::{Look, Watch, Which};
use crate::{Error, fail};
use screen::Screen;

/// Show what the workers of a world are doing, again and again.
///
/// Calls in flight, rates, latencies, bytes, queues, references and autograd contexts of every worker, the calls that have been under
/// way for longest, and who waits for whom. The arrow keys move through the workers where there are many.
///
/// It finds workers on this machine that `telegrad run` has started, or that have TELEGRAD_STATUS in their environment, and only those
/// of the same user.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,

    /// How often to look
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::run::seconds)]
    interval: Duration,
}

/// How often to look at most and at least.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// How long until keys, signals and looks are seen.
const ATTENTION: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &Args) -> ExitCode {
    match show(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

fn show(args: &Args) -> Result<(), Error> {
    let mut watch = Watch::new(args.which);
    // Before the screen is taken, so that what is wrong can be read.
    let first = watch.look()?;
    if !std::io::stdout().is_terminal() {
        return Err("this needs a terminal; `telegrad doctor` does not".into());
    }
    // Whoever ends this gets the terminal back as it was. A terminal that is gone needs nothing: its signal ends the process.
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let interval = args.interval.clamp(INTERVALS.0, INTERVALS.1);
    let (sender, looks) = sync_channel(1);
    let mut terminal = ratatui::try_init()?;
    // On a thread of its own: a worker that does not answer is waited for, and keys are not to be meanwhile.
    thread::spawn(move || keep_looking(watch, interval, &sender));
    let shown = draw(&mut terminal, first, &looks, &ended);
    ratatui::restore();
    shown
}

/// Looks until nobody wants to see it any more.
fn keep_looking(mut watch: Watch, interval: Duration, sender: &SyncSender<Result<Look, String>>) {
    loop {
        thread::sleep(interval);
        if sender
            .send(watch.look().map_err(|error| error.to_string()))
            .is_err()
        {
            return;
        }
    }
}

fn draw(
    terminal: &mut ratatui::DefaultTerminal,
    first: Look,
    looks: &Receiver<Result<Look, String>>,
    ended: &AtomicBool,
) -> Result<(), Error> {
    let mut screen = Screen::default();
    screen.seen(Ok(first));
    let mut is_new = true;
    while !ended.load(SeqCst) {
        if is_new {
            terminal.draw(|frame| screen.draw(frame))?;
        }
        is_new = false;
        if event::poll(ATTENTION)? {
            is_new = true;
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && !pressed(&mut screen, key)
            {
                return Ok(());
            }
        }
        while let Ok(look) = looks.try_recv() {
            screen.seen(look);
            is_new = true;
        }
    }
    Ok(())
}

/// Does what a key is for; whether to go on.
fn pressed(screen: &mut Screen, key: KeyEvent) -> bool {
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
