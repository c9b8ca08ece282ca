use crate::candle::Candle;

use super::*;

const OPENER: Rank = 3;

fn id(number: u64) -> ContextId {
    ContextId::new(OPENER, number)
}

#[test]
fn a_context_that_is_over_does_not_come_back() {
    let contexts = Contexts::<Candle>::default();
    assert!(contexts.get_or_join(id(1)).is_some());
    assert_eq!(contexts.end(id(1), None).len(), 1);
    assert!(contexts.get_or_join(id(1)).is_none());
    // Nor one that was not known here.
    assert_eq!(contexts.end(id(2), None).len(), 0);
    assert!(contexts.get_or_join(id(2)).is_none());
    assert!(contexts.get_or_join(id(3)).is_some());
    assert_eq!(contexts.remembered(), 0, "all below 3 are over");
    contexts.end(id(5), None);
    assert_eq!(contexts.remembered(), 1);
}

#[test]
fn what_was_missed_is_heard_with_the_next_end() {
    let contexts = Contexts::<Candle>::default();
    for number in 1..=4 {
        contexts.get_or_join(id(number));
    }
    let still = StillOpen {
        from: 0,
        to: 4,
        open: vec![2],
    };
    let mut over: Vec<_> = contexts.end(id(3), Some(&still)).into_iter().collect();
    over.sort_by_key(|(context, _)| context.0);
    let over: Vec<_> = over.into_iter().map(|(context, _)| context).collect();
    assert_eq!(over, [id(1), id(3)]);
    assert!(contexts.get(id(2)).is_some() && contexts.get(id(4)).is_some());
    assert_eq!(contexts.remembered(), 1, "3, which 2 is open below");
}

#[test]
fn what_was_missed_is_heard_in_turns_when_many_are_open() {
    let (opener, other) = (Contexts::<Candle>::default(), Contexts::<Candle>::default());
    let open: Vec<_> = (0..4 * LISTED).map(|_| opener.open(OPENER)).collect();
    for context in &open {
        other.get_or_join(*context);
    }
    let (told, missed) = open.split_at(2 * LISTED);
    for context in missed.iter().step_by(2) {
        opener.close(*context);
    }
    for context in &told[..5] {
        let still = opener.close(*context);
        assert!(still.open.len() <= LISTED);
        other.end(*context, Some(&still));
    }
    assert_eq!(other.all().len(), 2 * LISTED - 5 + LISTED);
    assert!(
        missed
            .iter()
            .step_by(2)
            .all(|context| other.get_or_join(*context).is_none())
    );
}

#[test]
fn ten_thousand_open_contexts_end_one_by_one() {
    let (opener, other) = (Contexts::<Candle>::default(), Contexts::<Candle>::default());
    let mut open: Vec<_> = (0..10_000).map(|_| opener.open(OPENER)).collect();
    for context in &open {
        other.get_or_join(*context);
    }
    fastrand::Rng::with_seed(1).shuffle(&mut open);
    for context in open {
        let still = opener.close(context);
        assert_eq!(opener.end(context, Some(&still)).len(), 1);
        assert_eq!(other.end(context, Some(&still)).len(), 1);
    }
    for contexts in [opener, other] {
        assert_eq!((contexts.all().len(), contexts.remembered()), (0, 0));
    }
}

#[test]
fn ranges_that_meet_become_one() {
    let mut ranges = Ranges::default();
    for range in [4..6, 8..9, 1..2, 6..7, 3..5] {
        ranges.add(range);
    }
    let numbers = |ranges: &Ranges| (0..12).filter(|n| ranges.contains(*n)).collect::<Vec<_>>();
    assert_eq!((ranges.len(), numbers(&ranges)), (3, vec![1, 3, 4, 5, 6, 8]));
    ranges.add(2..10);
    assert_eq!((ranges.len(), numbers(&ranges)), (1, (1..10).collect()));
    ranges.add(3..4);
    assert_eq!((ranges.len(), numbers(&ranges)), (1, (1..10).collect()));
}

#[test]
fn a_lost_opener_opens_no_more() {
    let contexts = Contexts::<Candle>::default();
    contexts.get_or_join(id(1));
    assert_eq!(contexts.gone(OPENER).len(), 1);
    assert!(contexts.get_or_join(id(1)).is_none());
    assert!(contexts.get_or_join(id(2)).is_none());
    assert!(contexts.get_or_join(ContextId::new(OPENER + 1, 1)).is_some());
}

/// An opener opens and closes contexts in any order, and what it says of that arrives in any order, or does not.
#[test]
fn whatever_arrives_when_what_is_open_can_be_joined_and_what_is_known_to_be_over_cannot() {
    let mut random = fastrand::Rng::with_seed(1);
    for case in 0..200 {
        // In some cases more are open than an end can list.
        let (steps, opens) = if case % 10 == 0 { (200, 4) } else { (30, 1) };
        let (opener, other) = (Contexts::<Candle>::default(), Contexts::<Candle>::default());
        let (mut open, mut said, mut over) = (Vec::new(), Vec::new(), BTreeSet::new());
        for _ in 0..steps {
            match random.u8(..4) {
                0 => open.extend((0..opens).map(|_| opener.open(OPENER))),
                1 if !open.is_empty() => {
                    let context = open.swap_remove(random.usize(..open.len()));
                    let still = opener.close(context);
                    opener.end(context, Some(&still));
                    if random.u8(..4) > 0 {
                        said.push((context, (random.u8(..4) > 0).then_some(still)));
                    }
                }
                2 if !said.is_empty() => {
                    let (context, still) = said.swap_remove(random.usize(..said.len()));
                    other.end(context, still.as_ref());
                    over.insert(context.number());
                }
                _ => {}
            }
            for context in &open {
                assert!(
                    other.get_or_join(*context).is_some(),
                    "case {case}: {context} is open"
                );
            }
            for number in &over {
                assert!(
                    other.get_or_join(id(*number)).is_none(),
                    "case {case}: {number} is over"
                );
            }
        }
        // With the last one it is known that all are over.
        open.push(opener.open(OPENER));
        for context in open {
            let still = opener.close(context);
            opener.end(context, Some(&still));
            other.end(context, Some(&still));
        }
        assert_eq!((opener.remembered(), other.remembered()), (0, 0), "case {case}");
    }
}
