//! What held up whom, as critical paths and usages show it (S42).

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use telegrad_testkit::{on_threads_and_processes, wait_until};

use super::*;

on_threads_and_processes! { 3 =>
    a_result_that_is_there_when_it_is_asked_for_held_up_nobody
    a_path_goes_from_a_callback_to_what_that_was_given_to
    a_path_goes_from_an_await_to_the_call_whoever_runs_it
    tasks_of_another_executor_belong_to_what_they_follow
    a_path_goes_from_a_call_on_a_value_to_what_made_it
    a_path_goes_from_a_call_on_a_value_to_what_kept_that_busy
    what_never_begins_keeps_nobody_busy
}

/// How long what is slow takes: longer than everything else.
const SLOW: Duration = Duration::from_millis(200);

#[remote]
fn slow() -> u32 {
    std::thread::sleep(SLOW);
    5
}

/// Where most of the critical path is.
#[track_caller]
fn longest(profile: &Profile) -> (String, String) {
    let step = profile.step().unwrap();
    let (worker, name, time) = step.critical().remove(0);
    assert!(time >= SLOW.as_nanos() as u64, "{step}");
    (worker, name)
}

/// That most of the critical path is within this function, there.
#[track_caller]
fn assert_longest(profile: &Profile, worker: &str, function: &str) {
    let (found, name) = longest(profile);
    let is_there = found == worker && name.ends_with(&format!("::{function}"));
    assert!(is_there, "{}", profile.step().unwrap());
}

fn a_result_that_is_there_when_it_is_asked_for_held_up_nobody(cluster: Cluster) {
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            let call = world.rpc_async(1, slow, ()).unwrap();
            // This thread has something else to do meanwhile.
            wait_until(Duration::from_secs(20), || call.done(), || "no result");
            assert_eq!(call.wait().unwrap(), 5);
            // Nor what nobody asks for.
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

fn a_path_goes_from_a_callback_to_what_that_was_given_to(cluster: Cluster) {
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            let call = world.rpc_async(1, slow, ()).unwrap();
            let first = call.then(|value| value);
            first.then(|value| value).wait().unwrap();
        })
        .unwrap();
        assert_longest(&profile, "w1", "slow");
        // Nothing ran on this worker while they waited.
        let usage = profile.step().unwrap().workers.remove(0);
        assert!(usage.waiting > usage.busy, "{usage:?}");
    });
}

fn waits_for_calls(profile: &Profile) -> usize {
    let is_one = |event: &&Event| matches!(event.kind, Kind::Wait { call: 1.. });
    profile.events.iter().filter(is_one).count()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor of somebody else's.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

#[remote]
async fn slow_at(to: u32) -> Result<u32> {
    let world = World::current()?;
    // Not waited for, though it was made last.
    let calls = [to, world.rank()].map(|to| world.rpc_async(to, slow, ()));
    let [first, second] = calls;
    let value = first?.await;
    second?.detach();
    value
}

fn a_path_goes_from_an_await_to_the_call_whoever_runs_it(cluster: Cluster) {
    on_first(cluster, |world| {
        let (_, at_home) = profile(&world, Options::default(), || {
            block_on(world.rpc_async(2, slow, ()).unwrap()).unwrap();
            block_on(join_all([world.rpc_async(2, slow, ()).unwrap()])).unwrap();
        })
        .unwrap();
        assert_longest(&at_home, "w2", "slow");
        assert_eq!(waits_for_calls(&at_home), 2, "{:#?}", at_home.events);
        let usage = at_home.step().unwrap().workers.remove(0);
        assert!(usage.waiting > usage.busy, "{usage:?}");
        let (_, away) = profile(&world, Options::default(), || {
            world.rpc_sync(1, slow_at, (2,)).unwrap();
        })
        .unwrap();
        assert_longest(&away, "w2", "slow");
        assert_eq!(waits_for_calls(&away), 2, "each once: {:#?}", away.events);
    });
}

fn tasks_of_another_executor_belong_to_what_they_follow(cluster: Cluster) {
    on_first(cluster, |world| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).build().unwrap();
        let (value, profile) = profile(&world, Options::default(), || {
            let other = world.clone();
            let task = async move {
                let first = other.rpc_async(2, slow, ())?.await?;
                // Perhaps on another thread by now.
                record_function!("afterwards");
                Ok::<_, telegrad_rpc::Error>(first)
            };
            let untold = {
                let other = world.clone();
                async move { other.rpc_async(1, slow, ())?.await }
            };
            let untold = runtime.spawn(untold);
            let value = runtime.block_on(runtime.spawn(telegrad_trace::here().follow(task)));
            runtime.block_on(untold).unwrap().unwrap();
            value.unwrap()
        })
        .unwrap();
        assert_eq!(value.unwrap(), 5);
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let call = of(&events, "call", "slow", root.span);
        assert_eq!(of(&events, "execution", "slow", call.span).worker, 2);
        of(&events, "scope", "afterwards", root.span);
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

fn a_path_goes_from_a_call_on_a_value_to_what_made_it(cluster: Cluster) {
    on_first(cluster, |world| {
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

fn a_path_goes_from_a_call_on_a_value_to_what_kept_that_busy(cluster: Cluster) {
    let board = cluster.board();
    on_first(cluster, move |world| {
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

fn what_never_begins_keeps_nobody_busy(cluster: Cluster) {
    let board = cluster.board();
    let cluster = cluster.options(|options| options.num_worker_threads = 1);
    on_first(cluster, move |world| {
        let net = world.remote(2, Net::after, (Some(board.clone()),)).unwrap();
        let busy = world.rpc_async(1, patient, (board.clone(),)).unwrap();
        board.wait("running");
        let (_, profile) = profile(&world, Options::default(), || {
            let hasty = world.with_timeout(SLOW / 4);
            // One waits for a thread, the other for its value.
            assert!(hasty.rpc_sync(1, slow, ()).is_err());
            assert!(net.with_timeout(SLOW / 4).rpc_sync(Net::forward, ()).is_err());
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
