//! What to know about the times of a profile.

use crate::profile::Profile;
use crate::worker_trace::Alignment;
use telegrad_wire::printable;

/// Workers whose names are told where all are meant. Nobody reads a thousand.
const NAMED: usize = 10;

impl Profile {
    /// Whose clocks could not be brought to one with the others (S43), in sentences for people.
    pub fn doubts(&self) -> Vec<String> {
        let doubts = [
            (
                Alignment::Unrelated,
                "no call tells how far the clocks of these workers are apart from the others', unless they are of one host:",
            ),
            (
                Alignment::Contradicts,
                "some of what these workers did is shown before its cause, because no clock was found that agrees with all of their calls:",
            ),
        ];
        let told = doubts.iter().filter_map(|(alignment, why)| {
            let names = self.named(*alignment)?;
            Some(format!("{why} {names}"))
        });
        told.collect()
    }

    /// The names of the workers whose clocks are related to the profile's in this way, if there are any.
    fn named(&self, alignment: Alignment) -> Option<String> {
        let workers = self.workers.iter().filter(|worker| worker.alignment == alignment);
        let names: Vec<String> = workers
            .map(|worker| format!("`{}`", printable(&worker.name)))
            .collect();
        let (first, more) = names.split_at(names.len().min(NAMED));
        let first = first.join(", ");
        match more.len() {
            0 => (!first.is_empty()).then_some(first),
            more => Some(format!("{first} and {more} more")),
        }
    }
}
