//! The screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, Wrap};

use telegrad::status::is_shutdown;

use super::columns::{self, duration, short};
use crate::watch::{Chains, OLD, Rates, Snapshot, Waits};

/// Length of the history: more than the width of a screen.
const HISTORY_LENGTH: usize = 600;

// Lines of each part of the screen. The table of workers leaves space for the calls below.
const TITLE: u16 = 1;
const HISTORY: u16 = 5;
/// Border and header of the table of workers.
const FRAME: u16 = 3;
const LOWER: u16 = 6;
const KEYS: u16 = 1;

/// On a narrower screen, calls and wait chains are stacked.
const WIDE: u16 = 100;

/// Workers to show on the smallest screen.
const MIN_ROWS: u16 = 2;

/// The state of the screen.
#[derive(Default)]
pub(super) struct Screen {
    snapshot: Snapshot,
    /// The wait chains of the snapshot, as text.
    waits: Text<'static>,
    /// Number of workers above the first row.
    scrolled: usize,
    /// The error of the last update; the snapshot is then outdated.
    error: Option<String>,
    /// Calls and bytes per second of all workers together.
    calls: Vec<u64>,
    bytes: Vec<u64>,
}

impl Screen {
    /// Takes the latest snapshot.
    pub(super) fn update(&mut self, snapshot: Result<Snapshot, String>) {
        match snapshot {
            Ok(snapshot) => {
                // The first snapshot has no rates: they are unknown, not 0.
                let rates: Vec<Rates> = snapshot
                    .workers
                    .iter()
                    .filter_map(|worker| worker.rates)
                    .collect();
                if !rates.is_empty() {
                    let sum = |of: fn(&Rates) -> f64| rates.iter().map(of).sum::<f64>().round() as u64;
                    push(&mut self.calls, sum(|rates| rates.made));
                    push(&mut self.bytes, sum(|rates| rates.bytes_out));
                }
                self.waits = waits(&snapshot);
                self.snapshot = snapshot;
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// Scrolls the table of workers.
    pub(super) fn scroll(&mut self, by: isize) {
        self.scrolled = self.scrolled.saturating_add_signed(by);
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let count = self.snapshot.workers.len();
        let available = frame
            .area()
            .height
            .saturating_sub(TITLE + HISTORY + FRAME + LOWER + KEYS);
        let rows = count.min(usize::from(available.max(MIN_ROWS)));
        // The last worker stays in the last row.
        self.scrolled = self.scrolled.min(count - rows);
        let areas = Layout::vertical([
            Constraint::Length(TITLE),
            Constraint::Length(HISTORY),
            Constraint::Length(rows as u16 + FRAME),
            Constraint::Min(LOWER),
            Constraint::Length(KEYS),
        ])
        .split(frame.area());
        frame.render_widget(self.title(), areas[0]);
        self.draw_history(frame, areas[1]);
        frame.render_widget(self.workers(rows, areas[2].width), areas[2]);
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let lower = if frame.area().width < WIDE {
            Layout::vertical(halves)
        } else {
            Layout::horizontal(halves)
        };
        let lower = lower.split(areas[3]);
        frame.render_widget(self.calls_in_flight(), lower[0]);
        let waits = Paragraph::new(self.waits.clone())
            .wrap(Wrap { trim: false })
            .block(Block::bordered().title(" wait chains "));
        frame.render_widget(waits, lower[1]);
        frame.render_widget(Line::from(" q quits, ↑ ↓ scroll the workers").dim(), areas[4]);
    }

    fn title(&self) -> Line<'static> {
        let size = self
            .snapshot
            .workers
            .first()
            .map_or(0, |worker| worker.status.size);
        let mut text = format!(" telegrad top: {} of {size} workers", self.snapshot.workers.len());
        if !self.snapshot.silent.is_empty() {
            let silent: Vec<_> = self.snapshot.silent.iter().map(ToString::to_string).collect();
            text += &format!(", no answer from rank {}", silent.join(", "));
        }
        match &self.error {
            Some(error) => Line::from(format!("{text}; {error}")).red().bold(),
            None => Line::from(text).bold(),
        }
    }

    fn draw_history(&self, frame: &mut Frame<'_>, area: Rect) {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).split(area);
        let titles = [
            self.calls.last().map_or(" – calls/s ".into(), |calls| {
                format!(" {} calls/s ", short(*calls as f64))
            }),
            self.bytes.last().map_or(" – B/s ".into(), |bytes| {
                format!(" {}B/s ", short(*bytes as f64))
            }),
        ];
        for ((history, title), area) in [&self.calls, &self.bytes]
            .into_iter()
            .zip(titles)
            .zip(halves.iter())
        {
            let width = area.width.saturating_sub(2) as usize;
            let shown = &history[history.len().saturating_sub(width)..];
            let line = Sparkline::default()
                .data(shown)
                .block(Block::bordered().title(title));
            frame.render_widget(line, *area);
        }
    }

    fn workers(&self, rows: usize, width: u16) -> Table<'static> {
        let count = self.snapshot.workers.len();
        let first = self.scrolled;
        let shown = self.snapshot.workers.iter().skip(first).take(rows);
        let title = if rows < count {
            format!(" workers {} to {} of {count} ", first + 1, first + rows)
        } else {
            " workers ".to_owned()
        };
        // Inside the border.
        let columns = columns::fitting(&self.snapshot.workers, width.saturating_sub(2));
        let header = columns.iter().map(|(column, _)| Cell::from(column.name));
        let rows = shown.map(|worker| Row::new(columns.iter().map(|(column, _)| (column.cell)(worker))));
        let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
        Table::new(rows, widths)
            .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
            .block(Block::bordered().title(title))
    }

    fn calls_in_flight(&self) -> Paragraph<'static> {
        let mut calls: Vec<_> = self
            .snapshot
            .workers
            .iter()
            .flat_map(|worker| {
                worker
                    .status
                    .made
                    .iter()
                    .map(move |made| (made.age, worker, made))
            })
            .filter(|(_, _, made)| !is_shutdown(&made.function))
            .collect();
        calls.sort_by_key(|(age, ..)| std::cmp::Reverse(*age));
        let lines: Vec<_> = calls
            .iter()
            .map(|(age, caller, made)| {
                let callee = self.name(made.callee);
                Line::from(format!(
                    "{:>8}  {} → {callee}  {}",
                    duration(*age),
                    caller.status.name,
                    made.function
                ))
            })
            .collect();
        Paragraph::new(lines).block(Block::bordered().title(" calls in flight, oldest first "))
    }

    fn name(&self, rank: u32) -> String {
        self.snapshot.name(rank).unwrap_or_else(|| format!("rank {rank}"))
    }
}

/// The wait chains as text.
fn waits(snapshot: &Snapshot) -> Text<'static> {
    let statuses = snapshot.statuses();
    let Waits {
        chains,
        more,
        barriers,
        cycles,
        suspects,
    } = Chains::new(&statuses).older(OLD);
    let mut text = Text::default();
    for cycle in cycles {
        text.push_line(Line::from(format!("CYCLE: {cycle}")).red().bold());
    }
    for suspect in suspects {
        text.push_line(Line::from(format!("possible cycle: {suspect}")).yellow());
    }
    for barrier in barriers {
        text.push_line(Line::from(barrier));
    }
    for chain in chains {
        for line in chain.to_string().lines() {
            text.push_line(Line::from(line.to_owned()));
        }
    }
    if more > 0 {
        text.push_line(Line::from(format!("and {more} more")));
    }
    text
}

fn push(history: &mut Vec<u64>, value: u64) {
    if history.len() == HISTORY_LENGTH {
        history.remove(0);
    }
    history.push(value);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    use telegrad::status::{Made, Status};

    use super::*;
    use crate::watch::WorkerSnapshot;

    fn worker(rank: u32) -> WorkerSnapshot {
        let mut counters = telegrad::DebugInfo::default();
        counters.queued = 1000 + rank as usize;
        WorkerSnapshot {
            status: Status {
                world: 1,
                rank,
                name: format!("worker-{rank}"),
                size: 64,
                process: 1,
                counters,
                ..Status::default()
            },
            rates: None,
            latency: None,
        }
    }

    fn drawn(screen: &mut Screen) -> String {
        drawn_in(screen, 140)
    }

    fn drawn_in(screen: &mut Screen, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn many_workers_scroll_and_leave_space_for_the_calls() {
        let mut screen = Screen::default();
        screen.update(Ok(Snapshot {
            workers: (0..60).map(worker).collect(),
            silent: (60..64).collect(),
        }));
        let text = drawn(&mut screen);
        assert!(
            text.contains("60 of 64 workers, no answer from rank 60, 61, 62, 63"),
            "{text}"
        );
        assert!(text.contains("worker-0 ") && text.contains("1000"), "{text}");
        assert!(text.contains("of 60") && !text.contains("worker-59"), "{text}");
        assert!(text.contains("wait chains") && text.contains("q quits"), "{text}");
        screen.scroll(isize::MAX);
        let text = drawn(&mut screen);
        assert!(text.contains("worker-59") && text.contains("1059"), "{text}");
        assert!(!text.contains("worker-0 "), "{text}");
        // One step back from the end takes effect at once.
        screen.scroll(-1);
        assert!(!drawn(&mut screen).contains("worker-59"));
        screen.scroll(isize::MIN);
        assert!(drawn(&mut screen).contains("worker-0 "));
    }

    #[test]
    fn unknown_rates_are_drawn_as_dashes() {
        let mut screen = Screen::default();
        let snapshot = |rates| {
            let mut worker = worker(0);
            worker.rates = rates;
            Ok(Snapshot {
                workers: vec![worker],
                silent: Vec::new(),
            })
        };
        screen.update(snapshot(None));
        assert!(drawn(&mut screen).contains("– calls/s"));
        screen.update(snapshot(Some(Rates {
            made: 0.0,
            served: 0.0,
            bytes_in: 0.0,
            bytes_out: 0.0,
        })));
        assert!(drawn(&mut screen).contains(" 0 calls/s"));
        assert_eq!(screen.calls, [0]);
    }

    #[test]
    fn a_narrow_screen_omits_columns_instead_of_truncating_them() {
        let mut screen = Screen::default();
        let snapshot = |rank| {
            let mut worker = worker(rank);
            worker.rates = Some(Rates {
                made: 123_456.0,
                served: 1e6,
                bytes_in: 1e9,
                bytes_out: 1e9,
            });
            worker
        };
        screen.update(Ok(Snapshot {
            workers: (0..2).map(snapshot).collect(),
            silent: Vec::new(),
        }));
        let has = |text: &str, shown: &[&str]| {
            for shown in shown {
                assert!(text.contains(shown), "no {shown} in\n{text}");
            }
        };
        let all = drawn_in(&mut screen, 140);
        has(&all, &["worker-1 ", "contexts", "1000"]);
        let some = drawn_in(&mut screen, 80);
        has(
            &some,
            &[
                "worker-1 ",
                "made/s",
                "123k",
                "p99",
                "queue",
                "1000",
                "calls in flight",
                "wait chains",
            ],
        );
        assert!(!some.contains("contexts"), "{some}");
        let few = drawn_in(&mut screen, 40);
        has(&few, &["worker-1 ", "made/s", "123k", "p99"]);
        assert!(!few.contains("served") && !few.contains("rank"), "{few}");
    }

    #[test]
    fn calls_of_a_shutdown_are_not_shown() {
        let call = |function: &str, seconds| Made {
            call: seconds,
            function: function.into(),
            callee: 0,
            age: Duration::from_secs(seconds),
            within: None,
            is_awaited: true,
            is_held_up: false,
            is_gathering: is_shutdown(function),
        };
        let mut worker = worker(0);
        worker.status.made = vec![call("telegrad::done", 90), call("work", 5)];
        let mut screen = Screen::default();
        screen.update(Ok(Snapshot {
            workers: vec![worker],
            silent: Vec::new(),
        }));
        let text = drawn(&mut screen);
        assert!(
            text.contains("work") && !text.contains("telegrad::done"),
            "{text}"
        );
    }
}
