//! A sample of many steps.

use std::collections::BTreeMap;

use telegrad_wire::Rank;

use telegrad_trace::Event;

/// A step of the sample: number `number` of the `count` steps of this name on its worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampledStep<'a> {
    pub(super) event: &'a Event,
    pub(super) number: usize,
    pub(super) count: usize,
}

/// Selects at most `limit` steps, in equal shares for each worker and name.
///
/// The steps of each group are spread evenly, and include the first, the last and the longest.
pub(super) fn sample(steps: Vec<&Event>, limit: usize) -> Vec<SampledStep<'_>> {
    let mut groups: BTreeMap<(Rank, &str), Vec<&Event>> = BTreeMap::new();
    for step in steps {
        groups.entry((step.worker, &step.name)).or_default().push(step);
    }
    let mut groups: Vec<Vec<&Event>> = groups.into_values().collect();
    // Small groups first: what they leave goes to larger ones.
    groups.sort_by_key(Vec::len);
    let (mut available, mut groups_left) = (limit, groups.len());
    let mut sampled = Vec::new();
    for group in groups {
        let count = group.len();
        let indices = spread(&group, (available / groups_left).min(count));
        available -= indices.len();
        groups_left -= 1;
        sampled.extend(indices.into_iter().map(|at| SampledStep {
            event: group[at],
            number: at + 1,
            count,
        }));
    }
    sampled.sort_by_key(|step| (step.event.start, step.event.span));
    sampled
}

/// Returns `count` indices of a group, in order.
fn spread(group: &[&Event], count: usize) -> Vec<usize> {
    let last = group.len() - 1;
    // The first of several equally long ones.
    let longest = (0..=last).rev().max_by_key(|at| group[*at].duration());
    let longest = longest.unwrap_or_default();
    match count {
        0 => return Vec::new(),
        1 => return vec![longest],
        _ => (),
    }
    let mut indices: Vec<usize> = (0..count).map(|n| n * last / (count - 1)).collect();
    if indices.binary_search(&longest).is_err() {
        // Replaces a neighbour, but not the first or the last one if there is another.
        let next = indices.partition_point(|at| *at < longest);
        let replaced = next.min(count.saturating_sub(2)).max(1);
        indices[replaced] = longest;
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;
    use telegrad_trace::{Kind, Status};

    fn step(span: u64, worker: Rank, start: u64, took: u64) -> Event {
        Event {
            span,
            parent: 0,
            name: "step".into(),
            kind: Kind::Scope,
            worker,
            thread: 0,
            start,
            end: start + took,
            status: Status::Ok,
            shapes: Vec::new(),
            tensor_bytes: 0,
            link: 0,
        }
    }

    fn numbers(steps: &[Event], limit: usize) -> Vec<(Rank, usize, usize)> {
        let chosen = sample(steps.iter().collect(), limit);
        let number = |step: SampledStep<'_>| (step.event.worker, step.number, step.count);
        chosen.into_iter().map(number).collect()
    }

    #[test]
    fn the_sample_is_even_and_has_the_first_the_last_and_the_longest_step() {
        for longest in 0..100 {
            let took = |n| if n == longest { 8 } else { 5 };
            let steps: Vec<Event> = (0..100).map(|n| step(n + 1, 0, n * 10, took(n))).collect();
            let chosen = numbers(&steps, 10);
            let numbers: Vec<usize> = chosen.iter().map(|(_, number, _)| *number).collect();
            let expected = usize::try_from(longest).unwrap() + 1;
            assert_eq!(numbers.len(), 10);
            for wanted in [1, expected, 100] {
                assert!(numbers.contains(&wanted), "no {wanted} in {numbers:?}");
            }
            let apart = numbers.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(apart.clone().all(|gap| (1..=22).contains(&gap)), "{numbers:?}");
            assert!(chosen.iter().all(|(_, _, count)| *count == 100));
        }
        let steps: Vec<Event> = (0..5).map(|n| step(n + 1, 0, n * 10, 5)).collect();
        assert_eq!(numbers(&steps, 5).len(), 5);
        assert_eq!(numbers(&steps, 1), [(0, 1, 5)]);
    }

    #[test]
    fn the_sample_has_steps_of_all_workers() {
        // The workers alternate: taking every nth step would find a few workers only.
        let mut steps: Vec<Event> = (0..6400)
            .map(|n| {
                step(
                    n + 1,
                    u32::try_from(n % 64).unwrap(),
                    n / 64 * 100 + n % 64,
                    (n * 7) % 60,
                )
            })
            .collect();
        let found = numbers(&steps, 200);
        assert!((192..=200).contains(&found.len()), "{}", found.len());
        for worker in 0..64 {
            let own = found.iter().filter(|(rank, ..)| *rank == worker);
            let own: Vec<_> = own.map(|(_, number, count)| (*number, *count)).collect();
            assert!(own.len() >= 3, "{own:?}");
            assert!(own.contains(&(1, 100)) && own.contains(&(100, 100)), "{own:?}");
        }
        // Small groups leave their share to others.
        steps.retain(|step| step.worker < 2 && (step.worker == 1 || step.span < 300));
        let found = numbers(&steps, 50);
        assert_eq!(found.iter().filter(|(rank, ..)| *rank == 0).count(), 5);
        assert_eq!(found.len(), 50);
        // More groups than the limit: one step of some of them.
        let crowd: Vec<Event> = (0..600)
            .map(|n| step(n + 1, u32::try_from(n / 2).unwrap(), n, 1))
            .collect();
        assert_eq!(numbers(&crowd, 200).len(), 200);
    }
}
