use crate::candle::Candle;

use super::*;

const OPENER: Rank = 3;

fn id(number: u64) -> ContextId {
    ContextId::new(OPENER, number)
}

#[test]
fn an_ended_context_cannot_be_joined() {
    let contexts = Contexts::<Candle>::default();
    assert!(contexts.get_or_join(id(1)).is_some());
    assert_eq!(contexts.end(id(1), None).len(), 1);
    assert!(contexts.get_or_join(id(1)).is_none());
    // Nor can one that ended before this worker joined it.
    assert_eq!(contexts.end(id(2), None).len(), 0);
    assert!(contexts.get_or_join(id(2)).is_none());
    assert!(contexts.get_or_join(id(3)).is_some());
    assert_eq!(contexts.ended_ranges(), 0, "all below 3 have ended");
    contexts.end(id(5), None);
    assert_eq!(contexts.ended_ranges(), 1);
}

#[test]
fn an_end_reports_earlier_ends_that_were_missed() {
    let contexts = Contexts::<Candle>::default();
    for number in 1..=4 {
        contexts.get_or_join(id(number));
    }
    let still = StillOpen {
        from: 0,
        to: 4,
        open: vec![2],
    };
    let mut ended: Vec<_> = contexts.end(id(3), Some(&still)).into_iter().collect();
    ended.sort_by_key(|(context, _)| context.0);
    let ended: Vec<_> = ended.into_iter().map(|(context, _)| context).collect();
    assert_eq!(ended, [id(1), id(3)]);
    assert!(contexts.get(id(2)).is_some() && contexts.get(id(4)).is_some());
    assert_eq!(contexts.ended_ranges(), 1, "3, above the open 2");
}

#[test]
fn many_open_contexts_are_listed_in_turns() {
    let (opener, other) = (Contexts::<Candle>::default(), Contexts::<Candle>::default());
    let open: Vec<_> = (0..4 * MAX_LISTED).map(|_| opener.open(OPENER)).collect();
    for context in &open {
        other.get_or_join(*context);
    }
    let (reported, missed) = open.split_at(2 * MAX_LISTED);
    for context in missed.iter().step_by(2) {
        opener.close(*context);
    }
    for context in &reported[..5] {
        let still = opener.close(*context);
        assert!(still.open.len() <= MAX_LISTED);
        other.end(*context, Some(&still));
    }
    assert_eq!(other.all().len(), 2 * MAX_LISTED - 5 + MAX_LISTED);
    assert!(
        missed
            .iter()
            .step_by(2)
            .all(|context| other.get_or_join(*context).is_none())
    );
}

#[test]
fn ten_thousand_open_contexts_end_in_any_order() {
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
        assert_eq!((contexts.all().len(), contexts.ended_ranges()), (0, 0));
    }
}

#[test]
fn adjacent_and_overlapping_ranges_are_merged() {
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
fn contexts_of_a_lost_opener_cannot_be_joined() {
    let contexts = Contexts::<Candle>::default();
    contexts.get_or_join(id(1));
    assert_eq!(contexts.end_all_of(OPENER).len(), 1);
    assert!(contexts.get_or_join(id(1)).is_none());
    assert!(contexts.get_or_join(id(2)).is_none());
    assert!(contexts.get_or_join(ContextId::new(OPENER + 1, 1)).is_some());
}

/// Opens and closes contexts in random order; reports of ends arrive in random order, and some are lost.
#[test]
fn open_contexts_can_be_joined_and_ended_ones_cannot_in_any_order_of_reports() {
    let mut random = fastrand::Rng::with_seed(1);
    for case in 0..200 {
        // In some cases more are open than an end can list.
        let (steps, opens) = if case % 10 == 0 { (200, 4) } else { (30, 1) };
        let (opener, other) = (Contexts::<Candle>::default(), Contexts::<Candle>::default());
        let (mut open, mut reports, mut ended) = (Vec::new(), Vec::new(), BTreeSet::new());
        for _ in 0..steps {
            match random.u8(..4) {
                0 => open.extend((0..opens).map(|_| opener.open(OPENER))),
                1 if !open.is_empty() => {
                    let context = open.swap_remove(random.usize(..open.len()));
                    let still = opener.close(context);
                    opener.end(context, Some(&still));
                    if random.u8(..4) > 0 {
                        reports.push((context, (random.u8(..4) > 0).then_some(still)));
                    }
                }
                2 if !reports.is_empty() => {
                    let (context, still) = reports.swap_remove(random.usize(..reports.len()));
                    other.end(context, still.as_ref());
                    ended.insert(context.number());
                }
                _ => {}
            }
            for context in &open {
                assert!(
                    other.get_or_join(*context).is_some(),
                    "case {case}: {context} is open"
                );
            }
            for number in &ended {
                assert!(
                    other.get_or_join(id(*number)).is_none(),
                    "case {case}: {number} has ended"
                );
            }
        }
        // The end of the last one reports that all have ended.
        open.push(opener.open(OPENER));
        for context in open {
            let still = opener.close(context);
            opener.end(context, Some(&still));
            other.end(context, Some(&still));
        }
        assert_eq!(
            (opener.ended_ranges(), other.ended_ranges()),
            (0, 0),
            "case {case}"
        );
    }
}
