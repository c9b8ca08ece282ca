use super::*;

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

#[test]
fn one_result_of_one_argument_goes_straight_through() {
    let mut schedule = Schedule::new([(1, vec!['a'])]);
    assert_eq!(schedule.gradient(1), Ok(()));
    assert_eq!(schedule.next(), [1]);
    assert_eq!(schedule.ran(&[1]), ['a']);
    assert!(schedule.is_over());
    assert_eq!(schedule.held(), 0);
}

#[test]
fn a_message_that_two_roots_reach_waits_for_both_and_costs_one_run() {
    let mut schedule = Schedule::new([(1, vec!['a']), (2, vec!['a'])]);
    schedule.gradient(1).unwrap();
    assert!(schedule.next().is_empty());
    assert_eq!(schedule.held(), 1);
    schedule.gradient(2).unwrap();
    assert_eq!(schedule.next(), [1, 2]);
    assert_eq!(schedule.ran(&[1, 2]), ['a']);
    assert_eq!(schedule.held(), 0);
}

#[test]
fn what_completes_something_does_not_wait_for_the_rest() {
    let mut schedule = Schedule::new([(1, vec!['a']), (2, vec!['b'])]);
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.next(), [1]);
    assert_eq!(schedule.ran(&[1]), ['a']);
    assert!(!schedule.is_over());
    // Nothing is held: that 2 was not used may be all right.
    assert_eq!(schedule.held(), 0);
}

#[test]
fn what_nobody_waits_behind_runs_at_once() {
    let mut schedule = Schedule::<_, char>::new([(1, vec![]), (2, vec![])]);
    schedule.gradient(2).unwrap();
    assert_eq!(schedule.next(), [2]);
    schedule.ran(&[2]);
    assert_eq!((schedule.held(), schedule.waiting()), (0, 1));
}

#[test]
fn what_runs_together_runs_in_the_same_order_whoever_came_first() {
    let mut schedule = Schedule::new([(1, vec!['a']), (2, vec!['a'])]);
    schedule.gradient(2).unwrap();
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.next(), [1, 2]);
}

#[test]
fn a_gradient_that_is_not_complete_is_held() {
    let mut schedule = Schedule::new([(1, vec!['a', 'b']), (2, vec!['b'])]);
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.next(), [1]);
    assert_eq!(schedule.ran(&[1]), ['a']);
    assert_eq!(schedule.held(), 1, "part of b");
    assert_eq!(schedule.only(&FxHashSet::default()), ['b']);
    assert_eq!(schedule.held(), 0);
    assert!(schedule.is_over());
}

#[test]
fn what_is_not_used_is_not_waited_for_once_that_is_known() {
    let mut schedule = Schedule::new([(1, vec!['a']), (2, vec!['a']), (3, vec!['a'])]);
    schedule.gradient(1).unwrap();
    assert!(schedule.next().is_empty());
    assert_eq!(sorted(schedule.waits_for().collect()), [2, 3]);
    assert!(schedule.only(&FxHashSet::from_iter([1, 3])).is_empty());
    assert!(schedule.next().is_empty(), "3 will come");
    schedule.gradient(3).unwrap();
    assert_eq!(schedule.next(), [1, 3]);
    assert_eq!(schedule.ran(&[1, 3]), ['a']);
    assert_eq!(schedule.gradient(2), Err(Unexpected::Unused));
}

#[test]
fn a_root_that_comes_while_another_runs_does_not_complete_too_early() {
    let mut schedule = Schedule::new([(1, vec!['a', 'b']), (2, vec!['b'])]);
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.next(), [1]);
    schedule.gradient(2).unwrap();
    assert_eq!(schedule.next(), [2]);
    assert!(schedule.ran(&[2]).is_empty());
    assert_eq!(sorted(schedule.ran(&[1])), ['a', 'b']);
    assert!(schedule.is_over());
}

#[test]
fn a_gradient_comes_once() {
    let mut schedule = Schedule::new([(1, vec!['a'])]);
    assert_eq!(schedule.gradient(7), Err(Unexpected::Unknown));
    schedule.gradient(1).unwrap();
    assert_eq!(schedule.gradient(1), Err(Unexpected::Again));
    schedule.next();
    assert_eq!(schedule.gradient(1), Err(Unexpected::Again));
    schedule.ran(&[1]);
    assert_eq!(schedule.gradient(1), Err(Unexpected::Again));
}

/// Whatever the graph and the order: each message that an active root reaches is completed once, after
/// all active roots that reach it, and nothing is held in the end.
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
                let run = schedule.next();
                if !run.is_empty() {
                    ran.extend(run.iter().copied());
                    done.extend(schedule.ran(&run));
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
        // Discovery ends at some point, at the latest when everything has come to rest.
        let known_after = random.usize(0..=order.len());
        for (position, root) in order.iter().enumerate() {
            if position == known_after {
                let early = schedule.only(&active);
                finish(&mut schedule, &mut complete, early);
            }
            schedule.gradient(*root).unwrap();
            finish(&mut schedule, &mut complete, Vec::new());
        }
        if known_after == order.len() {
            let early = schedule.only(&active);
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
