//! The status of a worker: pending calls, served requests, latencies (S46).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Waker};
use std::time::Duration;

use telegrad_rpc::status::{self, Made, Stage, Status};
use telegrad_rpc::{Options, RRef, Result, RpcFuture, World, init_with, remote};
use telegrad_testkit::{Board, Cluster, break_connections, on_cluster, wait_until};

/// Long enough for anything on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Longer than the time limit of any test.
const NO_LIMIT: Duration = Duration::from_secs(3600);

#[remote]
fn hold(board: Board) {
    board.raise("running");
    board.wait("go");
}

#[remote]
fn wait_for_the_end(board: Board) {
    board.wait("over");
}

#[remote]
fn name() -> Result<String> {
    Ok(World::current()?.name().into())
}

#[remote]
fn length(bytes: Vec<u8>) -> usize {
    bytes.len()
}

#[remote]
async fn never_ready() {
    std::future::pending::<()>().await;
}

struct Object;

#[remote]
impl Object {
    fn new() -> Result<Self> {
        Ok(Self)
    }

    fn made_late(board: Board) -> Result<Self> {
        board.wait("go");
        Ok(Self)
    }

    fn hold(&mut self, board: Board) {
        board.raise("running");
        board.wait("go");
    }

    fn touch(&mut self) {}
}

on_cluster! { threads: Cluster::threads(2) =>
    a_call_counts_as_awaited_while_a_thread_or_task_waits_for_it
    a_call_that_waits_for_credit_is_marked
    a_served_request_has_a_stage
    rank_0_lists_the_members_at_a_barrier
}

on_cluster! { processes: Cluster::processes(2) =>
    latencies_outlive_their_links
    telegrad_status_shows_the_workers_of_a_process
    telegrad_status_of_zero_shows_nothing
    an_empty_telegrad_status_shows_nothing
}

/// Returns the pending calls of a function.
fn pending(world: &World, function: &str) -> Vec<Made> {
    let mut made = world.status().made;
    made.retain(|made| made.function.ends_with(function));
    made
}

/// Waits until a function has exactly one pending call, for which the condition holds.
#[track_caller]
fn wait_for_pending(world: &World, function: &str, is_so: impl Fn(&Made) -> bool) {
    let is_so = || matches!(&pending(world, function)[..], [made] if is_so(made));
    wait_until(LIMIT, is_so, || format!("{:#?}", pending(world, function)));
}

fn poll<T: telegrad_wire::Wire>(call: &mut RpcFuture<T>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(call).poll(&mut context).is_pending());
}

fn a_call_counts_as_awaited_while_a_thread_or_task_waits_for_it(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let is_awaited = |expected: bool| {
            let made = pending(&world, "hold");
            assert!(
                matches!(&made[..], [made] if made.is_awaited == expected),
                "{made:#?}"
            );
        };
        let mut call = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        board.wait("running");
        is_awaited(false);
        assert_eq!(call.wait_timeout(Duration::from_millis(1)).unwrap(), None);
        is_awaited(false);
        // As an async function does that is woken by another future.
        poll(&mut call);
        is_awaited(true);
        let mut callback = call.then(|result| result);
        is_awaited(false);
        poll(&mut callback);
        is_awaited(true);
        let mut second = callback.then(|result| result);
        is_awaited(false);
        poll(&mut second);
        is_awaited(true);
        drop(second);
        is_awaited(false);
        board.raise("go");

        let mut call = world.rpc_async(1, wait_for_the_end, (board.clone(),)).unwrap();
        poll(&mut call);
        wait_for_pending(&world, "the_end", |made| made.is_awaited);
        call.detach();
        wait_for_pending(&world, "the_end", |made| !made.is_awaited);
        board.raise("over");
    });
}

fn a_call_that_waits_for_credit_is_marked(cluster: Cluster) {
    let board = cluster.board();
    let small = |options: &mut Options| {
        options.window = 64 << 10;
        options.num_worker_threads = 1;
    };
    cluster.options(small).run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let held = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        board.wait("running");
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| {
                let calls: Vec<_> = (0..100)
                    .map(|_| world.rpc_async(1, length, (vec![1; 8000],)).unwrap())
                    .collect();
                calls.into_iter().for_each(|call| {
                    call.wait().unwrap();
                });
            });
            let waits = |made: &Made| made.is_held_up && made.is_awaited;
            let is_so = || {
                pending(&world, "length")
                    .iter()
                    .filter(|made| waits(made))
                    .count()
                    == 1
            };
            wait_until(LIMIT, is_so, || format!("{:#?}", pending(&world, "length")));
            board.raise("go");
            calls.join().unwrap();
        });
        held.wait().unwrap();
        board.raise("over");
    });
}

fn a_served_request_has_a_stage(cluster: Cluster) {
    let board = cluster.board();
    let three_threads = |options: &mut Options| options.num_worker_threads = 3;
    cluster.options(three_threads).run(move |world| {
        if world.rank() == 1 {
            let are_so = |expected: &[(&str, Stage)]| {
                let stages = || -> Vec<(String, Stage)> {
                    let served = world.status().served.into_iter();
                    let stages = served.map(|served| (served.function.replace("status::", ""), served.stage));
                    let mut stages: Vec<_> = stages.collect();
                    stages.sort_by_key(|(function, stage)| (function.clone(), *stage as u8));
                    stages
                };
                let expected: Vec<_> = expected
                    .iter()
                    .map(|(function, stage)| (String::from(*function), *stage))
                    .collect();
                wait_until(LIMIT, || stages() == expected, || format!("{:?}", stages()));
            };
            let first = [
                ("Object::hold", Stage::Begun),
                ("Object::made_late", Stage::Begun),
                ("Object::touch", Stage::Value),
                ("Object::touch", Stage::Turn),
            ];
            are_so(&first);
            board.raise("seen");
            are_so(&[&first[..], &[("hold", Stage::Begun), ("name", Stage::Thread)]].concat());
            board.raise("go");
            return board.wait("over");
        }
        let object = world.remote(1, Object::new, ()).unwrap();
        let held = object.rpc_async(Object::hold, (board.clone(),)).unwrap();
        board.wait("running");
        let touched = object.rpc_async(Object::touch, ()).unwrap();
        let late: RRef<Object> = world.remote(1, Object::made_late, (board.clone(),)).unwrap();
        let touched_late = late.rpc_async(Object::touch, ()).unwrap();
        board.wait("seen");
        // One call takes the last thread, another one waits for a thread.
        let last = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        board.wait_for("running", 2);
        let named = world.rpc_async(1, name, ()).unwrap();
        for call in [held, touched, touched_late, last] {
            call.wait().unwrap();
        }
        named.wait().unwrap();
        board.raise("over");
    });
}

fn rank_0_lists_the_members_at_a_barrier(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            let came = || world.status().gatherings;
            wait_until(LIMIT, || came() == [[1]], || format!("{:?}", came()));
            assert!(!world.status().is_leaving);
        } else {
            assert_eq!(world.status().gatherings, Vec::<Vec<u32>>::new());
        }
        world.barrier().unwrap();
        board.raise("through");
        board.wait_for("through", 2);
        if world.rank() == 0 {
            assert_eq!(world.status().gatherings, Vec::<Vec<u32>>::new());
            board.raise("looked");
        }
        // The next gathering is that of the shutdown.
        board.wait("looked");
    });
}

fn latencies_outlive_their_links(cluster: Cluster) {
    let board = cluster.board();
    let shown = |options: &mut Options| options.show_status = true;
    cluster.options(shown).run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let counted = || {
            let status = world.status();
            let found = status.latency.iter().find(|latency| latency.to == 1);
            let found = found.expect("the latency of w1");
            assert_eq!(found.name, "w1");
            found.count()
        };
        for _ in 0..10 {
            world.rpc_sync(1, name, ()).unwrap();
        }
        let before = counted();
        assert!(before >= 10, "{before}");
        // The failure of a pending call shows that the break has been noticed.
        let waiting = world.rpc_async(1, never_ready, ()).unwrap();
        assert!(break_connections() > 0);
        waiting.wait().unwrap_err();
        assert_eq!(counted(), before + 1, "the lost call counts");
        world.rpc_sync(1, name, ()).unwrap();
        assert_eq!(counted(), before + 2);
        board.raise("over");
    });
}

/// Checks whether `status::processes` lists a process with this value of the variable.
fn assert_shown(cluster: Cluster, variable: &str, expected: bool) {
    cluster.env("TELEGRAD_STATUS", variable).run(move |_| {
        let shown = status::processes().unwrap();
        assert_eq!(shown.contains(&std::process::id()), expected);
    });
}

fn telegrad_status_shows_the_workers_of_a_process(cluster: Cluster) {
    assert_shown(cluster, "1", true);
}

fn telegrad_status_of_zero_shows_nothing(cluster: Cluster) {
    assert_shown(cluster, "0", false);
}

fn an_empty_telegrad_status_shows_nothing(cluster: Cluster) {
    assert_shown(cluster, "", false);
}

/// The second world, in which a function of the first makes a call.
static OTHER: OnceLock<World> = OnceLock::new();

#[remote]
fn call_elsewhere(board: Board) -> Result<()> {
    OTHER
        .get()
        .expect("the test has set it")
        .rpc_sync(0, hold, (board,))
}

#[test]
fn a_call_in_another_world_is_not_nested_in_the_call_that_makes_it() {
    let world = |place: &str| {
        let options = Options {
            init_method: format!("mem://{place}?rank=0&world_size=1"),
            ..Options::default()
        };
        init_with("alone", options).unwrap()
    };
    let (first, other) = (world("status-first"), world("status-other"));
    OTHER.set(other.clone()).unwrap();
    let board = Cluster::threads(1).board();
    let call = first.rpc_async(0, call_elsewhere, (board.clone(),)).unwrap();
    board.wait("running");
    wait_for_pending(&other, "hold", |made| made.is_awaited);
    assert_eq!(pending(&other, "hold")[0].within, None);
    board.raise("go");
    call.wait().unwrap();
    first.shutdown().unwrap();
    other.shutdown().unwrap();
}

/// A socket that never answers, under the number of a process that does not exist. Returns that number too.
fn silent_process() -> (UnixListener, u32) {
    let process = u32::MAX - std::process::id();
    let name = format!("telegrad-status-{process}");
    let address = SocketAddr::from_abstract_name(name).unwrap();
    (UnixListener::bind_addr(&address).unwrap(), process)
}

#[test]
fn a_query_ends_once_it_has_enough_answers() {
    let options = Options {
        init_method: "mem://status-enough?rank=0&world_size=1".into(),
        show_status: true,
        ..Options::default()
    };
    let world = init_with("alone", options).unwrap();
    let (_listener, silent) = silent_process();
    let ask = |limit| {
        let processes = [silent, std::process::id()];
        let is_enough = |workers: &[Status]| limit == NO_LIMIT && !workers.is_empty();
        status::ask(&processes, limit, is_enough).unwrap()
    };
    let enough = ask(NO_LIMIT);
    assert_eq!(
        (enough.workers[0].name.as_str(), enough.silent),
        ("alone", vec![])
    );
    // Otherwise the silent process is waited for until the limit, and named.
    assert_eq!(ask(Duration::from_millis(10)).silent, [silent]);
    world.shutdown().unwrap();
}
