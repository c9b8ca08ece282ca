//! When waiting threads poll and when they sleep at once. Decisions only: nothing here measures time.

use std::time::{Duration, Instant};

use telegrad_net::Spin;

/// Far beyond what any test takes.
const LONG: Duration = Duration::from_secs(60);

/// Spent by the time of the second look.
const SPENT: Duration = Duration::from_nanos(1);

/// How often a wait for something that never comes looks for it.
fn looks(spin: &mut Spin) -> u32 {
    let mut looks = 0;
    let found = spin.poll(|| {
        looks += 1;
        None::<()>
    });
    assert_eq!(found, None);
    looks
}

/// Waits in vain until it no longer looks.
fn tire(spin: &mut Spin) {
    for _ in 0..100 {
        if looks(spin) == 0 {
            return;
        }
    }
    panic!("it never gives up");
}

#[test]
fn polls_at_first_and_until_something_comes() {
    let mut left = 5;
    let found = Spin::new(LONG).poll(|| {
        left -= 1;
        (left == 0).then_some("here")
    });
    assert_eq!((found, left), (Some("here"), 0));
}

#[test]
fn looks_at_least_once_however_small_the_budget() {
    assert!(looks(&mut Spin::new(SPENT)) >= 1);
}

#[test]
fn ends_at_the_deadline_whatever_is_left_of_the_budget() {
    let mut spin = Spin::new(LONG);
    let deadline = Instant::now() + Duration::from_millis(2);
    assert_eq!(spin.poll_until(Some(deadline), || None::<()>), None);
    assert!(Instant::now() >= deadline);
    assert_eq!(spin.poll_until(Some(deadline), || None::<()>), None);
}

#[test]
fn without_a_budget_it_never_looks() {
    let mut spin = Spin::new(Duration::ZERO);
    assert_eq!(looks(&mut spin), 0);
    spin.slept(Duration::ZERO);
    assert_eq!(looks(&mut spin), 0);
}

#[test]
fn gives_up_after_enough_vain_waits_and_stays_so() {
    let mut spin = Spin::new(SPENT);
    tire(&mut spin);
    for _ in 0..10 {
        assert_eq!(looks(&mut spin), 0);
    }
}

#[test]
fn a_vain_wait_among_good_ones_changes_nothing() {
    let mut spin = Spin::new(SPENT);
    for _ in 0..100 {
        // Far beyond its budget, so it counts for several.
        assert!(looks(&mut spin) >= 1);
        for _ in 0..5 {
            assert_eq!(spin.poll(|| Some(())), Some(()));
        }
    }
}

#[test]
fn short_sleeps_bring_polling_back() {
    let mut spin = Spin::new(SPENT);
    tire(&mut spin);
    // Polling would have been worth it each time: shorter than the budget.
    let mut sleeps = 0;
    while looks(&mut spin) == 0 {
        spin.slept(Duration::ZERO);
        sleeps += 1;
        assert!(sleeps < 20, "it never tries again");
    }
    assert!(sleeps > 0);
}

#[test]
fn long_sleeps_do_not() {
    let mut spin = Spin::new(SPENT);
    tire(&mut spin);
    for _ in 0..100 {
        spin.slept(LONG);
        assert_eq!(looks(&mut spin), 0);
    }
}

#[test]
fn success_counts_no_higher_than_some_end() {
    // However long it went well, it gives up as fast as a new one.
    let mut fresh = Spin::new(SPENT);
    let mut lucky = Spin::new(SPENT);
    for _ in 0..1000 {
        assert_eq!(lucky.poll(|| Some(())), Some(()));
        lucky.slept(Duration::ZERO);
    }
    let vain = |spin: &mut Spin| (0..100).take_while(|_| looks(spin) > 0).count();
    assert_eq!(vain(&mut lucky), vain(&mut fresh));
}
