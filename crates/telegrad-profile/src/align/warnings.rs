//! Warnings about clocks that could not be aligned.

use crate::profile::Profile;
use crate::worker_trace::Alignment;
use telegrad_wire::printable;

/// The largest number of workers that a warning names.
const MAX_NAMED: usize = 10;

impl Profile {
    /// Returns sentences that name workers whose clocks could not be aligned (S43).
    pub fn clock_warnings(&self) -> Vec<String> {
        let texts = [
            (
                Alignment::Unrelated,
                "no calls connect these workers to the others, so that their clocks cannot be compared unless they are on one host:",
            ),
            (
                Alignment::Contradicts,
                "no clock agrees with all calls of these workers, so that some of their events are shown before their cause:",
            ),
        ];
        let warnings = texts.iter().filter_map(|(alignment, text)| {
            let names = self.named(*alignment)?;
            Some(format!("{text} {names}"))
        });
        warnings.collect()
    }

    /// Returns the names of the workers with this alignment, if there are any.
    fn named(&self, alignment: Alignment) -> Option<String> {
        let workers = self.workers.iter().filter(|worker| worker.alignment == alignment);
        let names: Vec<String> = workers
            .map(|worker| format!("`{}`", printable(&worker.name)))
            .collect();
        let (first, more) = names.split_at(names.len().min(MAX_NAMED));
        let first = first.join(", ");
        match more.len() {
            0 => (!first.is_empty()).then_some(first),
            more => Some(format!("{first} and {more} more")),
        }
    }
}
