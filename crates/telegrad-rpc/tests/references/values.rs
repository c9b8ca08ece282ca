//! What becomes of values that nobody needs any more, or that somebody needs still (S28, S31, S33).

use telegrad_rpc::Error;
use telegrad_testkit::on_cluster;

use super::*;

/// Says that it is being dropped, and waits in the middle of it.
struct Reluctant {
    board: Board,
    waits_for: &'static str,
    says: &'static str,
}

impl Drop for Reluctant {
    fn drop(&mut self) {
        self.board.raise("dropping");
        self.board.wait(self.waits_for);
        self.board.raise(self.says);
    }
}

on_cluster! { alone: Cluster::threads(1) =>
    a_value_that_is_slow_to_drop_does_not_hold_up_another
    a_shutdown_waits_until_freed_values_are_dropped
    values_go_with_their_world
    a_panic_in_a_drop_stays_there
}

fn a_value_that_is_slow_to_drop_does_not_hold_up_another(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let value = |waits_for, says| {
            let board = board.clone();
            let value = Reluctant {
                board,
                waits_for,
                says,
            };
            RRef::hold(&world, value).unwrap()
        };
        board.raise("anything");
        let (first, second) = (value("second", "first"), value("anything", "second"));
        drop(first);
        board.wait("dropping");
        drop(second);
        board.wait("first");
    });
}

fn a_shutdown_waits_until_freed_values_are_dropped(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        let value = Reluctant {
            board: board.clone(),
            waits_for: "go on",
            says: "dropped",
        };
        drop(RRef::hold(&world, value).unwrap());
        board.wait("dropping");
        let error = world.shutdown_within(Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, Error::Incomplete { .. }), "{error}");
        board.raise("go on");
        board.wait("dropped");
    });
}

/// Keeps the world that it lives in.
struct Actor {
    _world: World,
    _freed: Freed,
}

fn values_go_with_their_world(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        let actor = Actor {
            _world: world.clone(),
            _freed: Freed(board.clone()),
        };
        let actor = RRef::hold(&world, actor).unwrap();
        world.shutdown().unwrap();
        assert_eq!(board.count("freed"), 1);
        assert!(matches!(actor.local_value().map(drop), Err(Error::ShutDown)));
    });
}

/// Is afraid of its end.
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        panic!("not me");
    }
}

fn a_panic_in_a_drop_stays_there(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        drop(RRef::hold(&world, Touchy).unwrap());
        let counter = Counter::new(0, Some(board.clone())).unwrap();
        drop(RRef::hold(&world, counter).unwrap());
        board.wait("freed");
        let last = RRef::hold(&world, Touchy).unwrap();
        world.shutdown().unwrap();
        drop(last);
    });
}

/// Is only made when it is told to be, and can be given up before.
#[remote]
async fn eventually(value: i64, board: Board) -> Result<Counter> {
    board.raise("making");
    std::future::poll_fn(|cx| {
        if board.count("make it") > 0 {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
    Counter::new(value, None)
}

/// Tells by way of the board: whoever asked for it may be gone.
#[remote]
fn report(number: RRef<i64>, board: Board) {
    board.raise("kept");
    board.wait("use it");
    let number = number.to_here().map_err(|error| error.to_string());
    board.post("number", &format!("{number:?}"));
}

on_cluster! { three: Cluster::processes(3) =>
    what_a_value_of_somebody_else_depends_on_outlives_a_killed_worker
    what_nobody_depends_on_ends_with_a_killed_worker
}

fn what_a_value_of_somebody_else_depends_on_outlives_a_killed_worker(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        match world.rank() {
            0 => {
                board.wait("kept");
                board.kill(2);
                wait_until(&world, || !is_known(&world, "w2"));
                board.raise("make it");
                board.raise("use it");
                assert_eq!(board.read("number"), "Ok(7)");
                board.raise("over");
            }
            1 => board.wait("over"),
            _ => {
                let counter = world.remote(0, eventually, (7, board.clone())).unwrap();
                let number = counter.remote(Counter::get, ()).unwrap();
                board.wait("making");
                let _report = world.rpc_async(1, report, (number, board.clone())).unwrap();
                return board.wait("never");
            }
        }
        wait_for_nothing(&world);
    });
}

fn what_nobody_depends_on_ends_with_a_killed_worker(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        match world.rank() {
            0 => {
                board.wait("asked");
                board.kill(2);
                // Neither the value nor what was to be made from it.
                wait_until(&world, || world.debug_info().calls_in == 0);
                board.raise("over");
            }
            1 => board.wait("over"),
            _ => {
                let counter = world.remote(0, eventually, (7, board.clone())).unwrap();
                let number = counter.remote(Counter::get, ()).unwrap();
                board.wait("making");
                wait_until(&world, || number.confirmed_by_owner());
                board.raise("asked");
                return board.wait("never");
            }
        }
        wait_for_nothing(&world);
    });
}

/// Whether this worker still has anything of another.
fn is_known(world: &World, name: &str) -> bool {
    let holds =
        |info: &telegrad_rpc::ReferenceInfo| info.holders.iter().any(|(holder, _)| holder.name == name);
    world.references().iter().any(holds)
}
