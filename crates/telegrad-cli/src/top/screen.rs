//! What is on the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, Wrap};

use telegrad::status::is_shutdown;

use super::columns::{self, duration, short};
use crate::watch::{Chains, Look, OLD, Rates, Waits};

/// Looks that are remembered: more than a screen is wide.
const REMEMBERED: usize = 600;

/// The lines of each part of the screen. However many workers there are, what waits for long can be seen too.
const TITLE: u16 = 1;
const HISTORY: u16 = 5;
/// Around the workers, with the names of the columns.
const FRAME: u16 = 3;
const LOWER: u16 = 6;
const KEYS: u16 = 1;

/// Where there are fewer columns than this, what is under way and who waits are not side by side.
const WIDE: u16 = 100;

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
                // After the first look there is nothing to compare with: that is not the same as none.
                let rates: Vec<Rates> = look.workers.iter().filter_map(|seen| seen.rates).collect();
                if !rates.is_empty() {
                    let sum = |of: fn(&Rates) -> f64| rates.iter().map(of).sum::<f64>().round() as u64;
                    remember(&mut self.calls, sum(|rates| rates.made));
                    remember(&mut self.bytes, sum(|rates| rates.bytes_out));
                }
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
        frame.render_widget(self.workers(rows, areas[2].width), areas[2]);
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let lower = if frame.area().width < WIDE {
            Layout::vertical(halves)
        } else {
            Layout::horizontal(halves)
        };
        let lower = lower.split(areas[3]);
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
        let count = self.look.workers.len();
        let first = self.scrolled;
        let shown = self.look.workers.iter().skip(first).take(rows);
        let title = if rows < count {
            format!(" workers {} to {} of {count} ", first + 1, first + rows)
        } else {
            " workers ".to_owned()
        };
        // Within the frame.
        let columns = columns::that_fit(&self.look.workers, width.saturating_sub(2));
        let header = columns.iter().map(|(column, _)| Cell::from(column.name));
        let rows = shown.map(|seen| Row::new(columns.iter().map(|(column, _)| (column.cell)(seen))));
        let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
        Table::new(rows, widths)
            .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
            .block(Block::bordered().title(title))
    }

    fn calls_under_way(&self) -> Paragraph<'static> {
        let mut calls: Vec<_> = self
            .look
            .workers
            .iter()
            .flat_map(|seen| seen.status.made.iter().map(move |made| (made.age, seen, made)))
            .filter(|(_, _, made)| !is_shutdown(&made.function))
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
        self.look.name(rank).unwrap_or_else(|| format!("rank {rank}"))
    }
}

/// Who waits for whom, in words.
fn waits(look: &Look) -> Text<'static> {
    let statuses = look.statuses();
    let Waits {
        chains,
        more,
        meetings,
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
    for meeting in meetings {
        text.push_line(Line::from(meeting));
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

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    use telegrad::status::{Made, Status};

    use super::*;
    use crate::watch::Seen;

    fn seen(rank: u32) -> Seen {
        let mut counters = telegrad::DebugInfo::default();
        counters.queued = 1000 + rank as usize;
        Seen {
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
    fn nothing_is_drawn_of_what_is_not_known() {
        let mut screen = Screen::default();
        let look = |rates| {
            let mut seen = seen(0);
            seen.rates = rates;
            Ok(Look {
                workers: vec![seen],
                silent: Vec::new(),
            })
        };
        screen.seen(look(None));
        assert!(drawn(&mut screen).contains("– calls/s"));
        screen.seen(look(Some(Rates {
            made: 0.0,
            served: 0.0,
            bytes_in: 0.0,
            bytes_out: 0.0,
        })));
        assert!(drawn(&mut screen).contains(" 0 calls/s"));
        assert_eq!(screen.calls, [0]);
    }

    #[test]
    fn a_narrow_screen_has_fewer_columns_and_no_broken_ones() {
        let mut screen = Screen::default();
        let look = |rank| {
            let mut seen = seen(rank);
            seen.rates = Some(Rates {
                made: 123_456.0,
                served: 1e6,
                bytes_in: 1e9,
                bytes_out: 1e9,
            });
            seen
        };
        screen.seen(Ok(Look {
            workers: (0..2).map(look).collect(),
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
                "calls under way",
                "who waits",
            ],
        );
        assert!(!some.contains("contexts"), "{some}");
        let few = drawn_in(&mut screen, 40);
        has(&few, &["worker-1 ", "made/s", "123k", "p99"]);
        assert!(!few.contains("served") && !few.contains("rank"), "{few}");
    }

    #[test]
    fn the_oldest_call_is_none_of_a_shutdown() {
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
        let mut seen = seen(0);
        seen.status.made = vec![call("telegrad::done", 90), call("work", 5)];
        let mut screen = Screen::default();
        screen.seen(Ok(Look {
            workers: vec![seen],
            silent: Vec::new(),
        }));
        let text = drawn(&mut screen);
        assert!(
            text.contains("work") && !text.contains("telegrad::done"),
            "{text}"
        );
    }
}
