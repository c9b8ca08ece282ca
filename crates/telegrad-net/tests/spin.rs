//! When waiting threads poll and when they sleep at once. Only decisions are tested: no test measures time.

use std::time::{Duration, Instant};

use telegrad_net::Spin;

/// Far beyond the length of any test.
const LONG: Duration = Duration::from_secs(60);

/// Spent by the second check.
const SPENT: Duration = Duration::from_nanos(1);

/// Number of checks in a wait without success.
fn checks(spin: &mut Spin) -> u32 {
    let mut looks = 0;
    let found = spin.poll(|| {
        looks += 1;
        None::<()>
    });
    assert_eq!(found, None);
    looks
}

/// Waits without success until polling stops.
fn exhaust(spin: &mut Spin) {
    for _ in 0..100 {
        if checks(spin) == 0 {
            return;
        }
    }
    panic!("polling never stops");
}

#[test]
fn polls_at_first_and_until_success() {
    let mut left = 5;
    let found = Spin::new(LONG).poll(|| {
        left -= 1;
        (left == 0).then_some("here")
    });
    assert_eq!((found, left), (Some("here"), 0));
}

#[test]
fn checks_at_least_once_for_any_budget() {
    assert!(checks(&mut Spin::new(SPENT)) >= 1);
}

#[test]
fn ends_at_the_deadline_before_the_budget() {
    let mut spin = Spin::new(LONG);
    let deadline = Instant::now() + Duration::from_millis(2);
    assert_eq!(spin.poll_until(Some(deadline), || None::<()>), None);
    assert!(Instant::now() >= deadline);
    assert_eq!(spin.poll_until(Some(deadline), || None::<()>), None);
}

#[test]
fn without_a_budget_it_never_checks() {
    let mut spin = Spin::new(Duration::ZERO);
    assert_eq!(checks(&mut spin), 0);
    spin.slept(Duration::ZERO);
    assert_eq!(checks(&mut spin), 0);
}

#[test]
fn stops_polling_after_repeated_failures() {
    let mut spin = Spin::new(SPENT);
    exhaust(&mut spin);
    for _ in 0..10 {
        assert_eq!(checks(&mut spin), 0);
    }
}

#[test]
fn one_failure_among_successes_changes_nothing() {
    let mut spin = Spin::new(SPENT);
    for _ in 0..100 {
        // Far beyond its budget, so it counts several times.
        assert!(checks(&mut spin) >= 1);
        for _ in 0..5 {
            assert_eq!(spin.poll(|| Some(())), Some(()));
        }
    }
}

#[test]
fn short_sleeps_resume_polling() {
    let mut spin = Spin::new(SPENT);
    exhaust(&mut spin);
    // Shorter than the budget: polling would have paid each time.
    let mut sleeps = 0;
    while checks(&mut spin) == 0 {
        spin.slept(Duration::ZERO);
        sleeps += 1;
        assert!(sleeps < 20, "polling never resumes");
    }
    assert!(sleeps > 0);
}

#[test]
fn long_sleeps_do_not_resume_polling() {
    let mut spin = Spin::new(SPENT);
    exhaust(&mut spin);
    for _ in 0..100 {
        spin.slept(LONG);
        assert_eq!(checks(&mut spin), 0);
    }
}

#[test]
fn the_score_is_bounded() {
    // After any number of successes, polling stops as fast as at first.
    let mut fresh = Spin::new(SPENT);
    let mut lucky = Spin::new(SPENT);
    for _ in 0..1000 {
        assert_eq!(lucky.poll(|| Some(())), Some(()));
        lucky.slept(Duration::ZERO);
    }
    let vain = |spin: &mut Spin| (0..100).take_while(|_| checks(spin) > 0).count();
    assert_eq!(vain(&mut lucky), vain(&mut fresh));
}
