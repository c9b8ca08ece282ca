//! What is on the screen.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, Wrap};

use crate::watch::{Chains, Look, Seen, Waits};

/// Looks that are remembered: more than a screen is wide.
const REMEMBERED: usize = 600;

/// Chains of waits that are worth showing, and calls that ought to have begun.
const OLD: Duration = Duration::from_secs(1);

/// The lines of each part of the screen. However many workers there are, what waits for long can be seen too.
const TITLE: u16 = 1;
const HISTORY: u16 = 5;
/// Around the workers, with the names of the columns.
const FRAME: u16 = 3;
const LOWER: u16 = 6;
const KEYS: u16 = 1;

/// Workers that are shown on however small a screen.
const FEWEST: u16 = 2;

/// What has been seen so far.
#[derive(Default)]
pub(super) struct Screen {
    look: Look,
    /// The chains of waits in it, in words.
    waits: Text<'static>,
    /// How many workers are above those that are shown.
    scrolled: usize,
    /// Why the last look failed, if it did: then what is shown is old.
    trouble: Option<String>,
    /// Calls and bytes a second of all workers together.
    calls: Vec<u64>,
    bytes: Vec<u64>,
}

impl Screen {
    /// Takes what was seen last.
    pub(super) fn seen(&mut self, look: Result<Look, String>) {
        match look {
            Ok(look) => {
                let sum = |of: fn(&Seen) -> f64| look.workers.iter().map(of).sum::<f64>().round() as u64;
                remember(&mut self.calls, sum(|seen| seen.rates.made));
                remember(&mut self.bytes, sum(|seen| seen.rates.bytes_out));
                self.waits = waits(&look);
                self.look = look;
                self.trouble = None;
            }
            Err(error) => self.trouble = Some(error),
        }
    }

    /// Shows workers further down, or up.
    pub(super) fn scroll(&mut self, by: isize) {
        self.scrolled = self.scrolled.saturating_add_signed(by);
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let count = self.look.workers.len();
        let room = frame
            .area()
            .height
            .saturating_sub(TITLE + HISTORY + FRAME + LOWER + KEYS);
        let rows = count.min(usize::from(room.max(FEWEST)));
        // The last of them is at the bottom, not at the top.
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
        frame.render_widget(self.workers(rows), areas[2]);
        let lower = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).split(areas[3]);
        frame.render_widget(self.calls_under_way(), lower[0]);
        let waits = Paragraph::new(self.waits.clone())
            .wrap(Wrap { trim: false })
            .block(Block::bordered().title(" who waits for whom "));
        frame.render_widget(waits, lower[1]);
        frame.render_widget(
            Line::from(" q quits, ↑ ↓ move through the workers").dim(),
            areas[4],
        );
    }

    fn title(&self) -> Line<'static> {
        let size = self.look.workers.first().map_or(0, |seen| seen.status.size);
        let mut text = format!(" telegrad top: {} of {size} workers", self.look.workers.len());
        if !self.look.silent.is_empty() {
            let silent: Vec<_> = self.look.silent.iter().map(ToString::to_string).collect();
            text += &format!(", no answer from rank {}", silent.join(", "));
        }
        match &self.trouble {
            Some(trouble) => Line::from(format!("{text}; {trouble}")).red().bold(),
            None => Line::from(text).bold(),
        }
    }

    fn draw_history(&self, frame: &mut Frame<'_>, area: Rect) {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).split(area);
        let last = |history: &[u64]| history.last().copied().unwrap_or(0) as f64;
        let titles = [
            format!(" {} calls/s ", short(last(&self.calls))),
            format!(" {}B/s ", short(last(&self.bytes))),
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

    fn workers(&self, rows: usize) -> Table<'static> {
        let header = [
            "rank", "worker", "out", "in", "queue", "run", "wait", "made/s", "served/s", "in B/s", "out B/s",
            "p50", "p99", "refs", "contexts",
        ];
        let count = self.look.workers.len();
        let first = self.scrolled;
        let shown = self.look.workers.iter().skip(first).take(rows);
        let title = if rows < count {
            format!(" workers {} to {} of {count} ", first + 1, first + rows)
        } else {
            " workers ".to_owned()
        };
        let rows = shown.map(|seen| {
            let Seen {
                status,
                rates,
                latency,
            } = seen;
            let counters = &status.counters;
            let time = |share: f64| latency.percentile(share).map_or_else(String::new, duration);
            Row::new([
                status.rank.to_string(),
                status.name.clone(),
                counters.calls_out.to_string(),
                counters.calls_in.to_string(),
                counters.queued.to_string(),
                counters.running.to_string(),
                counters.blocked.to_string(),
                short(rates.made),
                short(rates.served),
                short(rates.bytes_in),
                short(rates.bytes_out),
                time(0.5),
                time(0.99),
                counters.references_held.to_string(),
                counters.contexts.to_string(),
            ])
        });
        let widths = [5, 16, 5, 5, 6, 5, 5, 8, 9, 8, 8, 8, 8, 6, 8].map(Constraint::Length);
        Table::new(rows, widths)
            .header(Row::new(header.map(Cell::from)).style(Style::new().add_modifier(Modifier::BOLD)))
            .block(Block::bordered().title(title))
    }

    fn calls_under_way(&self) -> Paragraph<'static> {
        let mut calls: Vec<_> = self
            .look
            .workers
            .iter()
            .flat_map(|seen| seen.status.made.iter().map(move |made| (made.age, seen, made)))
            .collect();
        calls.sort_by_key(|(age, ..)| std::cmp::Reverse(*age));
        let lines: Vec<_> = calls
            .iter()
            .map(|(age, seen, made)| {
                let callee = self.name(made.callee);
                Line::from(format!(
                    "{:>8}  {} → {callee}  {}",
                    duration(*age),
                    seen.status.name,
                    made.function
                ))
            })
            .collect();
        Paragraph::new(lines).block(Block::bordered().title(" calls under way, the oldest first "))
    }

    fn name(&self, rank: u32) -> String {
        let known = self.look.workers.iter().find(|seen| seen.status.rank == rank);
        known.map_or_else(|| format!("rank {rank}"), |seen| seen.status.name.clone())
    }
}

/// Who waits for whom, in words.
fn waits(look: &Look) -> Text<'static> {
    let statuses = look.statuses();
    let Waits {
        chains,
        more,
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

fn remember(history: &mut Vec<u64>, value: u64) {
    if history.len() == REMEMBERED {
        history.remove(0);
    }
    history.push(value);
}

/// A number in a few characters.
fn short(value: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit > 0 && value < 100.0 { 1 } else { 0 };
    format!("{value:.digits$}{}", units[unit])
}

fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds if seconds >= 1e-3 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{:.0} µs", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use telegrad::status::{Latency, Status};

    use super::*;
    use crate::watch::Rates;

    fn seen(rank: u32) -> Seen {
        let mut counters = telegrad::DebugInfo::default();
        counters.queued = 1000 + rank as usize;
        Seen {
            status: Status {
                world: 1,
                rank,
                name: format!("worker-{rank}"),
                size: 64,
                time: Duration::ZERO,
                process: 1,
                started_by: None,
                counters,
                made: Vec::new(),
                served: Vec::new(),
                latency: Vec::new(),
            },
            rates: Rates::default(),
            latency: Latency::default(),
        }
    }

    fn drawn(screen: &mut Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(140, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn many_workers_are_moved_through_and_leave_room_for_the_rest() {
        let mut screen = Screen::default();
        screen.seen(Ok(Look {
            workers: (0..60).map(seen).collect(),
            silent: (60..64).collect(),
        }));
        let text = drawn(&mut screen);
        assert!(
            text.contains("60 of 64 workers, no answer from rank 60, 61, 62, 63"),
            "{text}"
        );
        assert!(text.contains("worker-0 ") && text.contains("1000"), "{text}");
        assert!(text.contains("of 60") && !text.contains("worker-59"), "{text}");
        assert!(
            text.contains("who waits for whom") && text.contains("q quits"),
            "{text}"
        );
        screen.scroll(isize::MAX);
        let text = drawn(&mut screen);
        assert!(text.contains("worker-59") && text.contains("1059"), "{text}");
        assert!(!text.contains("worker-0 "), "{text}");
        // From the end it goes back at once.
        screen.scroll(-1);
        assert!(!drawn(&mut screen).contains("worker-59"));
        screen.scroll(isize::MIN);
        assert!(drawn(&mut screen).contains("worker-0 "));
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (999.0, "999"),
            (1234.0, "1.2k"),
            (123_456.0, "123k"),
            (5e7, "50.0M"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected);
        }
        assert_eq!(duration(Duration::from_micros(12)), "12 µs");
        assert_eq!(duration(Duration::from_millis(1500)), "1.5 s");
    }
}
