//! `telegrad top`: a world while it runs, in the terminal.

mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::watch::{Look, Watch};
use crate::{Error, fail};
use screen::Screen;

/// Show what the workers of a world are doing, again and again.
///
/// Calls in flight, rates, latencies, bytes, queues, references and autograd contexts of every worker, the calls that have been under
/// way for longest, and who waits for whom.
///
/// It finds workers on this machine that `telegrad run` has started, or that have TELEGRAD_STATUS in their environment, and only those
/// of the same user.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The process of any worker of the world, or of the `telegrad run` that has started it; needed when there are several worlds
    process: Option<u32>,

    /// How often to look
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::run::seconds)]
    interval: Duration,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match show(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

fn show(args: &Args) -> Result<(), Error> {
    let mut watch = Watch::new(args.process.into());
    // Before the screen is taken, so that what is wrong can be read.
    let first = watch.look()?;
    if !std::io::stdout().is_terminal() {
        return Err("this needs a terminal; `telegrad doctor` does not".into());
    }
    let mut terminal = ratatui::init();
    let shown = draw(
        &mut terminal,
        &mut watch,
        first,
        args.interval.max(Duration::from_millis(100)),
    );
    ratatui::restore();
    shown
}

fn draw(
    terminal: &mut ratatui::DefaultTerminal,
    watch: &mut Watch,
    first: Look,
    interval: Duration,
) -> Result<(), Error> {
    let mut screen = Screen::default();
    screen.seen(Ok(first));
    loop {
        let next = Instant::now() + interval;
        terminal.draw(|frame| screen.draw(frame))?;
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            if !event::poll(left)? {
                break;
            }
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    _ => {}
                },
                Event::Resize(..) => {
                    terminal.draw(|frame| screen.draw(frame))?;
                }
                _ => {}
            }
        }
        screen.seen(watch.look());
    }
}
