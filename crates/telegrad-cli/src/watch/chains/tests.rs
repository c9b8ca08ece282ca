//! Tests of wait chains.

use super::*;

const OLD: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

fn worker(rank: u32, made: Vec<Made>, served: Vec<Served>) -> Status {
    Status {
        world: 1,
        rank,
        name: format!("w{rank}"),
        size: 3,
        process: 1,
        made,
        served,
        ..Status::default()
    }
}

fn made(call: u64, callee: u32, within: Option<CallId>) -> Made {
    Made {
        call,
        function: format!("f{call}"),
        callee,
        age: OLD,
        within,
        is_awaited: true,
        is_held_up: false,
        is_gathering: false,
    }
}

fn served(caller: u32, call: u64, object: Option<u64>, stage: Stage) -> Served {
    Served {
        caller,
        call,
        function: format!("f{call}"),
        age: OLD,
        stage,
        object: object.map(|number| (0, number)),
        makes: None,
        is_gathering: false,
    }
}

/// A method that calls another method of the same object, which is in this stage.
fn nested(stage: Stage) -> [Status; 2] {
    let there = vec![served(0, 1, Some(7), Stage::Begun), served(1, 2, Some(7), stage)];
    [
        worker(0, vec![made(1, 1, None)], Vec::new()),
        worker(1, vec![made(2, 1, Some((0, 1)))], there),
    ]
}

#[test]
fn a_shared_wait_is_reported_once() {
    // Many calls wait for an object. Its user waits for many calls, which wait for the next object.
    let (levels, many) = (8, 200);
    let (mut calls, mut there) = (Vec::new(), Vec::new());
    for level in 0..levels {
        let user = level * 1000;
        calls.push(made(user, 1, None));
        there.push(served(0, user, Some(level), Stage::Begun));
        for number in 1..many {
            let within = (level > 0).then(|| (0, (level - 1) * 1000));
            calls.push(made(user + number, 1, within));
            there.push(served(0, user + number, Some(level), Stage::Turn));
        }
    }
    let workers = [worker(0, calls, Vec::new()), worker(1, Vec::new(), there)];
    let waits = Chains::new(&workers).older(SECOND);
    assert_eq!(waits.chains.len(), MAX_CHAINS);
    let calls = levels * many;
    assert!(
        (waits.chains.len() + waits.more) as u64 <= 2 * calls,
        "{}",
        waits.more
    );
    assert!(waits.cycles.is_empty());
}

#[test]
fn an_object_that_waits_for_its_own_method_is_a_cycle() {
    let workers = nested(Stage::Turn);
    let waits = Chains::new(&workers).older(SECOND);
    let expected = "`f1` on `w1` waits for `f2` on `w1`, which cannot begin before the first has returned";
    assert_eq!(waits.cycles, [expected]);
    let chain = &waits.chains[0];
    assert!(chain.is_cycle && chain.from == 0);
    let states: Vec<_> = chain
        .links
        .iter()
        .map(|link| (link.state.name(), link.caller, link.is_stuck))
        .collect();
    // The caller of the first call waits for the cycle, but is not part of it.
    assert_eq!(states, [("waits", 0, false), ("has not begun", 1, true)]);
    // A young cycle may have ended since.
    assert!(Chains::new(&workers).older(2 * OLD).cycles.is_empty());
}

#[test]
fn a_call_that_does_not_wait_for_the_object_is_not_a_cycle() {
    for (stage, why) in [
        (Stage::Thread, "it waits for a thread"),
        (Stage::References, "owners have confirmed its references"),
        (Stage::Begun, "which runs"),
        (Stage::Returned, "which has returned"),
    ] {
        let workers = nested(stage);
        let waits = Chains::new(&workers).older(SECOND);
        assert!(waits.cycles.is_empty() && waits.suspects.is_empty(), "{stage:?}");
        let [chain] = &waits.chains[..] else {
            panic!("{stage:?}: {} chains", waits.chains.len());
        };
        assert!(!chain.is_cycle && chain.to_string().contains(why), "{chain}");
    }
}

#[test]
fn a_returned_call_does_not_occupy_its_object() {
    let workers = [
        worker(0, vec![made(1, 1, None)], Vec::new()),
        worker(
            1,
            vec![made(2, 1, Some((0, 1)))],
            vec![
                served(0, 1, Some(7), Stage::Returned),
                served(1, 2, Some(7), Stage::Turn),
            ],
        ),
    ];
    assert!(Chains::new(&workers).older(SECOND).cycles.is_empty());
}

#[test]
fn a_queue_at_an_object_is_not_a_possible_cycle() {
    let many = 300;
    let made = (0..2 * many).map(|call| made(call, 1, None)).collect();
    let stage = |call| if call < many { Stage::Begun } else { Stage::Turn };
    let there = (0..2 * many)
        .map(|call| served(0, call, Some(7), stage(call)))
        .collect();
    let workers = [worker(0, made, Vec::new()), worker(1, Vec::new(), there)];
    let waits = Chains::new(&workers).older(SECOND);
    assert_eq!(
        (waits.cycles.len(), waits.suspects.len()),
        (0, 0),
        "{:?}",
        waits.suspects
    );
    let last = &waits.chains[MAX_CHAINS - 1].to_string();
    assert!(
        last.contains("waits for its turn at the object") && last.contains("which runs"),
        "{last}"
    );
}

#[test]
fn equal_possible_cycles_are_reported_once() {
    // Each chain returns to its worker through another one, with the same functions.
    let (mut calls, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
    let mut back = Vec::new();
    for call in 0..300 {
        let named = |mut served: Served, name: &str| {
            served.function = name.into();
            served
        };
        calls.push(made(call, 1, None));
        first.push(named(served(0, call, None, Stage::Begun), "there"));
        second.push(made(call, 0, Some((0, call))));
        back.push(named(served(1, call, None, Stage::Begun), "back"));
    }
    calls.iter_mut().for_each(|made| made.function = "there".into());
    second.iter_mut().for_each(|made| made.function = "back".into());
    let workers = [worker(0, calls, back), worker(1, second, first)];
    let waits = Chains::new(&workers).older(SECOND);
    let [suspect] = &waits.suspects[..] else {
        panic!("{:?}", waits.suspects);
    };
    assert!(
        suspect.starts_with("`w0` waits for `there` on `w1` waits for `back` on `w0`: if"),
        "{suspect}"
    );
}

#[test]
fn cycles_come_before_long_waits() {
    let mut workers = nested(Stage::Turn);
    for call in 100..300 {
        let mut long = made(call, 1, None);
        long.age = 2 * OLD;
        workers[0].made.push(long);
    }
    let waits = Chains::new(&workers).older(SECOND);
    assert!(waits.chains[0].is_cycle && !waits.chains[1].is_cycle);
    assert_eq!(waits.chains.len() + waits.more, 201);
}

#[test]
fn an_old_wait_is_reported_even_if_its_waiters_are_young() {
    let mut young = made(2, 1, None);
    young.age = Duration::ZERO;
    let there = vec![
        served(0, 1, Some(7), Stage::Begun),
        served(0, 2, Some(7), Stage::Turn),
    ];
    let workers = [
        worker(0, vec![made(1, 1, None), young], Vec::new()),
        worker(1, Vec::new(), there),
    ];
    let waits = Chains::new(&workers).older(SECOND);
    assert_eq!(waits.chains.len(), 1);
    assert!(
        waits.chains[0].to_string().contains("`f1` on `w1`"),
        "{}",
        waits.chains[0]
    );
}

#[test]
fn the_walk_is_linear_in_the_users_of_an_object() {
    // A hundred million pairs of a waiting call and a user of the object.
    let many = 10_000;
    let (mut calls, mut there) = (Vec::new(), Vec::new());
    for call in 0..2 * many {
        let stage = if call < many { Stage::Begun } else { Stage::Turn };
        calls.push(made(call, 1, None));
        there.push(served(0, call, Some(7), stage));
    }
    let workers = [worker(0, calls, Vec::new()), worker(1, Vec::new(), there)];
    let chains = Chains::new(&workers);
    let mut steps = 0;
    chains
        .graph
        .walk(chains.starts(SECOND), |path, _| steps += path.len());
    assert!(steps as u64 <= 8 * many, "{steps}");
    let waits = chains.older(SECOND);
    assert_eq!((waits.cycles.len(), waits.chains.len()), (0, MAX_CHAINS));
}

#[test]
fn every_cycle_is_reported_without_the_calls_that_lead_to_it() {
    // Two calls of one function return to its object, and an unrelated call waits for the object too.
    let mut workers = nested(Stage::Turn);
    workers[1].made.push(made(3, 1, Some((0, 1))));
    workers[1].served.push(served(1, 3, Some(7), Stage::Turn));
    workers[0].made.push(made(4, 1, None));
    workers[1].served.push(served(0, 4, Some(7), Stage::Turn));
    let waits = Chains::new(&workers).older(SECOND);
    let cycle = |last: &str| {
        format!("`f1` on `w1` waits for `{last}` on `w1`, which cannot begin before the first has returned")
    };
    assert_eq!(waits.cycles, [cycle("f2"), cycle("f3")]);
}

/// A function on 1 that occupies an object and waits for a function on 0, which waits for credit to call 1: requests of 0 use up the
/// credit. One of them waits for the object, another one is in this stage.
fn without_credit(stage: Stage) -> [Status; 2] {
    let mut held_up = made(3, 1, Some((1, 2)));
    held_up.is_held_up = true;
    let on_0 = vec![made(1, 1, None), made(4, 1, None), made(5, 1, None), held_up];
    let on_1 = vec![
        served(0, 1, Some(7), Stage::Begun),
        served(0, 4, Some(7), Stage::Turn),
        served(0, 5, Some(7), stage),
    ];
    [
        worker(0, on_0, vec![served(1, 2, None, Stage::Begun)]),
        worker(1, vec![made(2, 0, Some((0, 1)))], on_1),
    ]
}

#[test]
fn calls_that_wait_for_each_others_credit_are_a_cycle() {
    let workers = without_credit(Stage::Turn);
    let cycle = |last: &str| {
        format!(
            "`f1` on `w1` waits for `f2` on `w0` waits for `f3` on `w1` waits for `{last}` on `w1`, which cannot begin before the \
             first has returned"
        )
    };
    assert_eq!(
        Chains::new(&workers).older(SECOND).cycles,
        [cycle("f4"), cycle("f5")]
    );
    // A request that waits for a thread will return its credit.
    assert!(
        Chains::new(&without_credit(Stage::Thread))
            .older(SECOND)
            .cycles
            .is_empty()
    );
    // So may a young one.
    let mut young = without_credit(Stage::Turn);
    (young[0].made[2].age, young[1].served[2].age) = (Duration::ZERO, Duration::ZERO);
    assert!(Chains::new(&young).older(SECOND).cycles.is_empty());
}

#[test]
fn calls_given_up_are_reported_from_their_callees() {
    let workers = [
        worker(0, Vec::new(), Vec::new()),
        worker(
            1,
            Vec::new(),
            vec![served(0, 1, None, Stage::Begun), served(2, 9, None, Stage::Begun)],
        ),
    ];
    let waits = Chains::new(&workers).older(SECOND);
    let texts: Vec<_> = waits.chains.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "`w0` made a call 10.0 s ago and gave it up\n  for `f1` on `w1`, called 10.0 s ago, which runs",
            "`rank 2`, which does not answer, made a call 10.0 s ago\n  for `f9` on `w1`, called 10.0 s ago, which runs",
        ]
    );
}

/// A gather on rank 0 at which these members have arrived.
fn gather(arrived: &[u32]) -> [Status; 3] {
    let is_here = |rank: u32| arrived.contains(&rank);
    let mut workers = [0, 1, 2].map(|rank| {
        let mut part = made(5, 0, None);
        part.is_gathering = true;
        worker(
            rank,
            is_here(rank).then_some(part).into_iter().collect(),
            Vec::new(),
        )
    });
    for rank in arrived {
        let mut part = served(*rank, 5, None, Stage::Begun);
        part.is_gathering = true;
        workers[0].served.push(part);
    }
    workers[0].gatherings = vec![arrived.to_vec()];
    workers
}

#[test]
fn a_barrier_is_reported_with_its_missing_members() {
    let workers = gather(&[0, 2]);
    let waits = Chains::new(&workers).older(SECOND);
    let expected = "`w0`, `w2` have waited at a barrier or in a gather for 10.0 s: `w1` has not arrived";
    assert_eq!(waits.barriers, [expected]);
    assert!(waits.chains.is_empty() && !waits.is_empty());
    assert!(Chains::new(&workers).older(2 * OLD).is_empty());
    // Without rank 0, the members that have arrived are unknown.
    let waits = Chains::new(&workers[1..]).older(SECOND);
    assert!(
        waits.barriers[0].starts_with("`w2` has waited"),
        "{:?}",
        waits.barriers
    );
    assert!(
        waits.barriers[0].ends_with("because `rank 0` does not answer"),
        "{:?}",
        waits.barriers
    );
}

#[test]
fn a_shutdown_is_not_reported_as_a_wait() {
    let mut workers = gather(&[0, 2]);
    workers[0].gatherings.clear();
    workers[0].made.push(made(6, 1, None));
    let call_of_shutdown = |function: &mut String| *function = "telegrad::done".into();
    for worker in &mut workers {
        let parts = worker.made.iter_mut().filter(|made| made.is_gathering);
        parts.for_each(|made| call_of_shutdown(&mut made.function));
        let parts = worker.served.iter_mut();
        parts.for_each(|served| call_of_shutdown(&mut served.function));
    }
    let functions = |workers: &[Status]| -> Vec<String> {
        let chains = Chains::new(workers);
        let calls = chains.in_flight().into_iter();
        calls.map(|call| call.function.to_owned()).collect()
    };
    // Independent of their age, and of the side that reports them.
    assert_eq!(functions(&workers), ["f6"]);
    assert_eq!(functions(&workers[..1]), ["f6"]);
    workers[0].made.pop();
    let chains = Chains::new(&workers);
    assert!(chains.older(SECOND).is_empty());
    assert_eq!(chains.leaving(), ["`w0`", "`w2`"]);
}

#[test]
fn calls_known_to_both_sides_are_reported_once() {
    let mut making = served(0, 5, None, Stage::Thread);
    (making.makes, making.age) = (Some((0, 1)), 2 * OLD);
    let workers = [
        // The second call is on its way, and the last one was given up.
        worker(
            0,
            vec![made(4, 1, None), made(6, 1, None)],
            vec![served(1, 8, None, Stage::Begun)],
        ),
        worker(
            1,
            Vec::new(),
            vec![
                served(0, 4, None, Stage::Begun),
                making,
                served(2, 9, None, Stage::Begun),
            ],
        ),
    ];
    let chains = Chains::new(&workers);
    let calls: Vec<_> = chains
        .in_flight()
        .iter()
        .map(|call| (call.caller, call.callee, call.call, call.makes, call.state.name()))
        .collect();
    assert_eq!(
        calls,
        [
            (0, 1, 5, true, "has not begun"),
            (0, 1, 4, false, "runs"),
            (0, 1, 6, false, "on its way"),
            (2, 1, 9, false, "runs"),
        ]
    );
}

#[test]
fn a_wait_for_credit_is_reported() {
    let mut held_up = made(1, 1, None);
    held_up.is_held_up = true;
    let workers = [
        worker(0, vec![held_up], Vec::new()),
        worker(1, Vec::new(), Vec::new()),
    ];
    let chains = Chains::new(&workers);
    let waits = chains.older(SECOND);
    assert!(
        waits.chains[0]
            .to_string()
            .ends_with("it waits for credit from the callee")
    );
    assert_eq!(chains.in_flight()[0].state.name(), "waits for credit");
}
