use super::*;

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

#[test]
fn a_root_that_reaches_one_message_completes_it() {
    let mut schedule = Schedule::new([(1, vec!['a'])]);
    assert_eq!(schedule.gradient(1), Ok(()));
    assert_eq!(schedule.next_batch(), [1]);
    assert_eq!(schedule.finish(&[1]), ['a']);
    assert!(schedule.is_over());
    assert_eq!(schedule.held(), 0);
}

#[test]
fn a_message_reached_by_two_roots_is_completed_by_one_run_of_both() {
    let mut schedule = Schedule::new([(1, vec!['a']), (2, vec!['a'])]);
    schedule.gradient(1).unwrap();
    assert!(schedule.next_batch().is_empty());
    assert_eq!(schedule.held(), 1);
    schedule.gradient(2).unwrap();
    assert_eq!(schedule.next_batch(), [1, 2]);
    assert_eq!(schedule.finish(&[1, 2]), ['a']);
    assert_eq!(schedule.held(), 0);
}

#[test]
fn a_root_that_completes_a_message_runs_without_the_others() {
    let mut schedule = Schedule::new([(1, vec!['a']), (2, vec!['b'])]);
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.next_batch(), [1]);
    assert_eq!(schedule.finish(&[1]), ['a']);
    assert!(!schedule.is_over());
    // Nothing is held: 2 may be unused.
    assert_eq!(schedule.held(), 0);
}

#[test]
fn a_root_that_reaches_no_message_runs_at_once() {
    let mut schedule = Schedule::<_, char>::new([(1, vec![]), (2, vec![])]);
    schedule.gradient(2).unwrap();
    assert_eq!(schedule.next_batch(), [2]);
    schedule.finish(&[2]);
    assert_eq!((schedule.held(), schedule.awaited_count()), (0, 1));
}

#[test]
fn the_order_of_a_batch_is_independent_of_the_order_of_arrival() {
    let mut schedule = Schedule::new([(1, vec!['a']), (2, vec!['a'])]);
    schedule.gradient(2).unwrap();
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.next_batch(), [1, 2]);
}

#[test]
fn an_incomplete_gradient_is_held() {
    let mut schedule = Schedule::new([(1, vec!['a', 'b']), (2, vec!['b'])]);
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.next_batch(), [1]);
    assert_eq!(schedule.finish(&[1]), ['a']);
    assert_eq!(schedule.held(), 1, "part of b");
    assert_eq!(schedule.restrict_to(&FxHashSet::default()), ['b']);
    assert_eq!(schedule.held(), 0);
    assert!(schedule.is_over());
}

#[test]
fn inactive_roots_are_not_awaited_after_restriction() {
    let mut schedule = Schedule::new([(1, vec!['a']), (2, vec!['a']), (3, vec!['a'])]);
    schedule.gradient(1).unwrap();
    assert!(schedule.next_batch().is_empty());
    assert_eq!(sorted(schedule.awaited().collect()), [2, 3]);
    assert!(schedule.restrict_to(&FxHashSet::from_iter([1, 3])).is_empty());
    assert!(schedule.next_batch().is_empty(), "3 will come");
    schedule.gradient(3).unwrap();
    assert_eq!(schedule.next_batch(), [1, 3]);
    assert_eq!(schedule.finish(&[1, 3]), ['a']);
    assert_eq!(schedule.gradient(2), Err(Rejection::Unused));
}

#[test]
fn a_gradient_that_arrives_during_a_run_completes_no_message_early() {
    let mut schedule = Schedule::new([(1, vec!['a', 'b']), (2, vec!['b'])]);
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.next_batch(), [1]);
    schedule.gradient(2).unwrap();
    assert_eq!(schedule.next_batch(), [2]);
    assert!(schedule.finish(&[2]).is_empty());
    assert_eq!(sorted(schedule.finish(&[1])), ['a', 'b']);
    assert!(schedule.is_over());
}

#[test]
fn a_second_gradient_of_a_root_is_rejected() {
    let mut schedule = Schedule::new([(1, vec!['a'])]);
    assert_eq!(schedule.gradient(7), Err(Rejection::Unknown));
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.gradient(1), Err(Rejection::Duplicate));
    schedule.next_batch();
    assert_eq!(schedule.gradient(1), Err(Rejection::Duplicate));
    schedule.finish(&[1]);
    assert_eq!(schedule.gradient(1), Err(Rejection::Duplicate));
}

/// Each message that an active root reaches is completed once, after all active roots that reach it, and nothing is
/// held at the end.
#[test]
fn every_order_on_random_graphs_completes_everything_once() {
    let mut random = fastrand::Rng::with_seed(7);
    for case in 0..2000 {
        let roots = random.usize(1..6);
        let messages = random.usize(0..6);
        let graph: Vec<(usize, Vec<usize>)> = (0..roots)
            .map(|root| (root, (0..messages).filter(|_| random.bool()).collect()))
            .collect();
        let active: FxHashSet<usize> = (0..roots).filter(|_| random.u8(0..4) > 0).collect();
        let mut order: Vec<usize> = active.iter().copied().collect();
        order.sort_unstable();
        random.shuffle(&mut order);
        let mut schedule = Schedule::new(graph.clone());
        let (mut ran, mut complete) = (FxHashSet::default(), Vec::new());
        let mut finish =
            |schedule: &mut Schedule<usize, usize>, complete: &mut Vec<usize>, early: Vec<usize>| {
                let mut done = early;
                let run = schedule.next_batch();
                if !run.is_empty() {
                    ran.extend(run.iter().copied());
                    done.extend(schedule.finish(&run));
                }
                for message in &done {
                    let missing = graph
                        .iter()
                        .filter(|(root, reaches)| active.contains(root) && reaches.contains(message));
                    for (root, _) in missing {
                        assert!(ran.contains(root), "case {case}: {message} before {root}");
                    }
                }
                complete.extend(done);
            };
        // Discovery ends at a random point, at the latest when the pass has stopped.
        let known_after = random.usize(0..=order.len());
        for (position, root) in order.iter().enumerate() {
            if position == known_after {
                let early = schedule.restrict_to(&active);
                finish(&mut schedule, &mut complete, early);
            }
            schedule.gradient(*root).unwrap();
            finish(&mut schedule, &mut complete, Vec::new());
        }
        if known_after == order.len() {
            let early = schedule.restrict_to(&active);
            finish(&mut schedule, &mut complete, early);
        }
        let mut expected: Vec<usize> = graph
            .iter()
            .filter(|(root, _)| active.contains(root))
            .flat_map(|(_, reaches)| reaches.clone())
            .collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(sorted(complete), expected, "case {case}");
        assert_eq!(schedule.held(), 0, "case {case}");
        assert!(schedule.is_over(), "case {case}");
    }
}
