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
    assert_eq!(contexts.remembered(), 2);
}

#[test]
fn what_was_missed_is_heard_with_the_next_end() {
    let contexts = Contexts::<Candle>::default();
    for number in 1..=4 {
        contexts.get_or_join(id(number));
    }
    let still = StillOpen {
        open: vec![2],
        next: 4,
    };
    let mut over: Vec<_> = contexts.end(id(3), Some(&still)).into_iter().collect();
    over.sort_by_key(|(context, _)| context.0);
    let over: Vec<_> = over.into_iter().map(|(context, _)| context).collect();
    assert_eq!(over, [id(1), id(3)]);
    assert!(contexts.get(id(2)).is_some() && contexts.get(id(4)).is_some());
    assert_eq!(contexts.remembered(), 0);
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
    for case in 0..500 {
        let (opener, other) = (Contexts::<Candle>::default(), Contexts::<Candle>::default());
        let (mut open, mut said, mut over) = (Vec::new(), Vec::new(), BTreeSet::new());
        for _ in 0..30 {
            match random.u8(..4) {
                0 => open.push(opener.open(OPENER)),
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
        assert_eq!(opener.remembered(), 0, "case {case}");
    }
}
