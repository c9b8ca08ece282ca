//! What is on the screen.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};

use crate::Error;
use crate::watch::{Chains, Look, Seen};

/// Looks that are remembered: more than a screen is wide.
const REMEMBERED: usize = 600;

/// Chains of waits that are worth showing, and calls that ought to have begun.
const OLD: Duration = Duration::from_secs(1);

/// What has been seen so far.
#[derive(Default)]
pub(super) struct Screen {
    look: Look,
    /// Why the last look failed, if it did: then what is shown is old.
    trouble: Option<String>,
    /// Calls and bytes a second of all workers together.
    calls: Vec<u64>,
    bytes: Vec<u64>,
}

impl Screen {
    /// Takes what was seen last.
    pub(super) fn seen(&mut self, look: Result<Look, Error>) {
        match look {
            Ok(look) => {
                let sum = |of: fn(&Seen) -> f64| look.workers.iter().map(of).sum::<f64>().round() as u64;
                remember(&mut self.calls, sum(|seen| seen.rates.made));
                remember(&mut self.bytes, sum(|seen| seen.rates.bytes_out));
                self.look = look;
                self.trouble = None;
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let rows = self.look.workers.len() as u16;
        let statuses = self.look.statuses();
        let chains = Chains::new(&statuses);
        let waits = self.waits(&chains);
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(5),
            Constraint::Length(rows + 3),
            Constraint::Min(4),
            Constraint::Length(1),
        ])
        .split(frame.area());
        frame.render_widget(self.title(), areas[0]);
        self.draw_history(frame, areas[1]);
        frame.render_widget(self.workers(), areas[2]);
        let lower = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).split(areas[3]);
        frame.render_widget(self.calls_under_way(), lower[0]);
        let waits = Paragraph::new(waits).block(Block::bordered().title(" who waits for whom "));
        frame.render_widget(waits, lower[1]);
        frame.render_widget(Line::from(" q quits").dim(), areas[4]);
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

    fn workers(&self) -> Table<'static> {
        let header = [
            "rank", "worker", "out", "in", "queue", "run", "wait", "made/s", "served/s", "in B/s", "out B/s",
            "p50", "p99", "refs", "contexts",
        ];
        let rows = self.look.workers.iter().map(|seen| {
            let Seen {
                status,
                rates,
                latency,
            } = seen;
            let counters = &status.counters;
            // Of all calls, whoever they went to.
            let time = |share: f64| {
                let longest = latency
                    .iter()
                    .filter_map(|latency| latency.percentile(share))
                    .max();
                longest.map_or_else(String::new, duration)
            };
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
            .block(Block::bordered().title(" workers "))
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

    fn waits(&self, chains: &Chains<'_>) -> Text<'static> {
        let mut text = Text::default();
        for cycle in chains.cycles(OLD) {
            text.push_line(Line::from(format!("CYCLE: {cycle}")).red().bold());
        }
        for chain in chains.older(OLD) {
            for line in chain.to_string().lines() {
                text.push_line(Line::from(line.to_owned()));
            }
        }
        text
    }

    fn name(&self, rank: u32) -> String {
        let known = self.look.workers.iter().find(|seen| seen.status.rank == rank);
        known.map_or_else(|| format!("rank {rank}"), |seen| seen.status.name.clone())
    }
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
    use super::*;

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
