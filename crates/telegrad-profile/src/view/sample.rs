//! Which of many steps are looked at.

use std::collections::BTreeMap;

use telegrad_wire::Rank;

use telegrad_trace::Event;

/// A step that is looked at, the `number`th of all `count` that its worker has of this name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen<'a> {
    pub(super) event: &'a Event,
    pub(super) number: usize,
    pub(super) count: usize,
}

/// Of steps by time, so many at most: from each worker, and of each name, as many as of the others, as far as there are. They are
/// spread evenly over the whole, and the first, the last and the longest are among them.
pub(super) fn spread(steps: Vec<&Event>, most: usize) -> Vec<Chosen<'_>> {
    let mut groups: BTreeMap<(Rank, &str), Vec<&Event>> = BTreeMap::new();
    for step in steps {
        groups.entry((step.worker, &step.name)).or_default().push(step);
    }
    let mut groups: Vec<Vec<&Event>> = groups.into_values().collect();
    // What the small ones leave is for the large ones.
    groups.sort_by_key(Vec::len);
    let (mut room, mut left) = (most, groups.len());
    let mut chosen = Vec::new();
    for group in groups {
        let count = group.len();
        let places = places(&group, (room / left).min(count));
        room -= places.len();
        left -= 1;
        chosen.extend(places.into_iter().map(|at| Chosen {
            event: group[at],
            number: at + 1,
            count,
        }));
    }
    chosen.sort_by_key(|step| (step.event.start, step.event.span));
    chosen
}

/// So many places of a group, in order.
fn places(group: &[&Event], room: usize) -> Vec<usize> {
    let last = group.len() - 1;
    // The first of those that took as long.
    let longest = (0..=last).rev().max_by_key(|at| group[*at].duration());
    let longest = longest.unwrap_or_default();
    match room {
        0 => return Vec::new(),
        1 => return vec![longest],
        _ => (),
    }
    let mut places: Vec<usize> = (0..room).map(|n| n * last / (room - 1)).collect();
    if places.binary_search(&longest).is_err() {
        // It takes the place of a neighbour that is at neither end, where there is one.
        let next = places.partition_point(|at| *at < longest);
        let place = next.min(room.saturating_sub(2)).max(1);
        places[place] = longest;
    }
    places
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

    fn numbers(steps: &[Event], most: usize) -> Vec<(Rank, usize, usize)> {
        let chosen = spread(steps.iter().collect(), most);
        let number = |step: Chosen<'_>| (step.event.worker, step.number, step.count);
        chosen.into_iter().map(number).collect()
    }

    #[test]
    fn the_first_the_last_and_the_longest_are_chosen_and_others_evenly() {
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
    fn all_workers_are_among_them_as_far_as_there_is_room() {
        // In step with each other: whoever takes every so many finds the same few workers.
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
        // Those that have few leave room for the others.
        steps.retain(|step| step.worker < 2 && (step.worker == 1 || step.span < 300));
        let found = numbers(&steps, 50);
        assert_eq!(found.iter().filter(|(rank, ..)| *rank == 0).count(), 5);
        assert_eq!(found.len(), 50);
        // More than there is room for: one of each, for some.
        let crowd: Vec<Event> = (0..600)
            .map(|n| step(n + 1, u32::try_from(n / 2).unwrap(), n, 1))
            .collect();
        assert_eq!(numbers(&crowd, 200).len(), 200);
    }
}
