//! Critical paths and usage: which work delayed a step (S42).

use telegrad_testkit::{block_on, on_threads_and_processes, wait_until};

use super::*;

on_threads_and_processes! { 3 =>
    a_result_that_is_ready_in_time_is_not_on_the_critical_path
    the_critical_path_goes_from_a_callback_to_its_call
    the_critical_path_goes_from_an_await_to_its_call_on_any_executor
    a_task_of_another_executor_belongs_to_the_span_it_follows
    the_critical_path_goes_from_a_method_to_the_creation_of_its_value
    the_critical_path_goes_from_a_method_to_the_call_that_blocked_it
    a_call_that_never_starts_is_neither_busy_nor_waiting
}

#[remote(inline)]
fn ping() {}

#[remote]
fn slow() -> u32 {
    std::thread::sleep(SLOW);
    5
}

/// Returns worker and name of the longest part of the critical path.
#[track_caller]
fn longest(profile: &Profile) -> (String, String) {
    let step = profile.step().unwrap();
    let (worker, name, time) = step.critical().remove(0);
    assert!(time >= SLOW.as_nanos() as u64, "{step}");
    (worker, name)
}

/// Checks that the longest part of the critical path is this function on this worker.
#[track_caller]
fn assert_longest(profile: &Profile, worker: &str, function: &str) {
    let (found, name) = longest(profile);
    let is_there = found == worker && name.ends_with(&format!("::{function}"));
    assert!(is_there, "{}", profile.step().unwrap());
}

fn a_result_that_is_ready_in_time_is_not_on_the_critical_path(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let call = world.rpc_async(1, slow, ()).unwrap();
            // This thread is busy meanwhile.
            wait_until(Duration::from_secs(20), || call.done(), || "no result");
            assert_eq!(call.wait().unwrap(), 5);
            // A detached call and an unused value are not on the path either.
            world.rpc_async(2, slow, ()).unwrap().detach();
            let _value: RRef<u32> = world.remote(1, slow, ()).unwrap();
        })
        .unwrap();
        assert_eq!(longest(&profile), ("w0".into(), "profile".into()));
        let step = profile.step().unwrap();
        assert!(
            step.critical().iter().all(|(worker, ..)| worker == "w0"),
            "{step}"
        );
    });
}

fn the_critical_path_goes_from_a_callback_to_its_call(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let call = world.rpc_async(1, slow, ()).unwrap();
            let first = call.then(|value| value);
            first.then(|value| value).wait().unwrap();
        })
        .unwrap();
        assert_longest(&profile, "w1", "slow");
        // This worker only waited.
        let usage = profile.step().unwrap().workers.remove(0);
        assert!(usage.waiting > usage.busy, "{usage:?}");
    });
}

fn waits_for_calls(profile: &Profile) -> usize {
    let is_one = |event: &&Event| matches!(event.kind, Kind::Wait { call: 1.. });
    profile.events.iter().filter(is_one).count()
}

#[remote]
async fn slow_at(to: u32) -> Result<u32> {
    let world = World::current()?;
    // The second call, made last, is not awaited.
    let calls = [to, world.rank()].map(|to| world.rpc_async(to, slow, ()));
    let [first, second] = calls;
    let value = first?.await;
    second?.detach();
    value
}

fn the_critical_path_goes_from_an_await_to_its_call_on_any_executor(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (_, on_this_thread) = profile(&world, Options::default(), || {
            block_on(world.rpc_async(2, slow, ()).unwrap()).unwrap();
            block_on(join_all([world.rpc_async(2, slow, ()).unwrap()])).unwrap();
        })
        .unwrap();
        assert_longest(&on_this_thread, "w2", "slow");
        assert_eq!(
            waits_for_calls(&on_this_thread),
            2,
            "{:#?}",
            on_this_thread.events
        );
        let usage = on_this_thread.step().unwrap().workers.remove(0);
        assert!(usage.waiting > usage.busy, "{usage:?}");
        let (_, on_a_worker) = profile(&world, Options::default(), || {
            world.rpc_sync(1, slow_at, (2,)).unwrap();
        })
        .unwrap();
        assert_longest(&on_a_worker, "w2", "slow");
        assert_eq!(
            waits_for_calls(&on_a_worker),
            2,
            "each once: {:#?}",
            on_a_worker.events
        );
    });
}

fn a_task_of_another_executor_belongs_to_the_span_it_follows(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).build().unwrap();
        let (value, profile) = profile(&world, Options::default(), || {
            let other = world.clone();
            let task = async move {
                let first = other.rpc_async(2, slow, ())?.await?;
                // Possibly on another thread.
                record_function!("afterwards");
                Ok::<_, telegrad_rpc::Error>(first)
            };
            let unfollowed = {
                let other = world.clone();
                async move { other.rpc_async(1, slow, ())?.await }
            };
            let unfollowed = runtime.spawn(unfollowed);
            let value = runtime.block_on(runtime.spawn(telegrad_trace::here().follow(task)));
            runtime.block_on(unfollowed).unwrap().unwrap();
            value.unwrap()
        })
        .unwrap();
        assert_eq!(value.unwrap(), 5);
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let call = find(&events, "call", "slow", root.span);
        assert_eq!(find(&events, "execution", "slow", call.span).worker, 2);
        find(&events, "scope", "afterwards", root.span);
        assert_eq!(waits_for_calls(&profile), 1, "{:#?}", profile.events);
        assert_longest(&profile, "w2", "slow");
    });
}

struct Net;

#[remote]
impl Net {
    fn new() -> Result<Self> {
        slow();
        Ok(Self)
    }

    fn after(board: Option<Board>) -> Result<Self> {
        if let Some(board) = board {
            board.wait("go");
        }
        Ok(Self)
    }

    fn forward(&self) -> u32 {
        7
    }

    fn train(&mut self, board: Board) {
        board.raise("running");
        slow();
    }
}

fn the_critical_path_goes_from_a_method_to_the_creation_of_its_value(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let net = world.remote(1, Net::new, ()).unwrap();
            net.rpc_sync(Net::forward, ()).unwrap();
        })
        .unwrap();
        assert_longest(&profile, "w1", "new");
        let step = profile.step().unwrap();
        assert!(step.workers[1].waiting < SLOW.as_nanos() as u64 / 2, "{step}");
    });
}

fn the_critical_path_goes_from_a_method_to_the_call_that_blocked_it(cluster: Cluster) {
    let board = cluster.board();
    cluster.run_on_rank_0(move |world, _| {
        let net = world.remote(1, Net::after, (None,)).unwrap();
        let (_, profile) = profile(&world, Options::default(), || {
            net.rpc_async(Net::train, (board.clone(),)).unwrap().detach();
            board.wait("running");
            net.rpc_sync(Net::forward, ()).unwrap();
        })
        .unwrap();
        assert_longest(&profile, "w1", "train");
    });
}

fn a_call_that_never_starts_is_neither_busy_nor_waiting(cluster: Cluster) {
    let board = cluster.board();
    let cluster = cluster.options(|options| options.num_worker_threads = 1);
    cluster.run_on_rank_0(move |world, _| {
        let net = world.remote(2, Net::after, (Some(board.clone()),)).unwrap();
        let busy = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        board.wait("running");
        let (_, profile) = profile(&world, Options::default(), || {
            let hasty = world.with_timeout(SLOW / 4);
            // One call waits for a thread, the other for its value.
            assert!(hasty.rpc_sync(1, slow, ()).is_err());
            assert!(net.with_timeout(SLOW / 4).rpc_sync(Net::forward, ()).is_err());
            // Arrives behind the cancellations, so that neither call can start after the signal. The thread is not part of
            // the profile, so that these calls are not either.
            std::thread::scope(|scope| {
                scope.spawn(|| [1, 2].map(|rank| world.rpc_sync(rank, ping, ()).unwrap()));
            });
            board.raise("go");
        })
        .unwrap();
        busy.wait().unwrap();
        let events = events(&profile);
        let executions: Vec<_> = events
            .iter()
            .filter(|event| event.as_execution().is_some())
            .collect();
        assert_eq!(executions.len(), 2, "{events:#?}");
        for execution in executions {
            let never = (execution.duration(), &execution.status);
            assert_eq!(never, (0, &Status::TimedOut), "{execution:?}");
        }
        let step = profile.step().unwrap();
        for usage in &step.workers[1..] {
            assert_eq!((usage.busy, usage.waiting), (0, 0), "{step}");
        }
    });
}
