//! Freeing values: slow and panicking drops, shutdowns, values that others depend on (S28, S31, S33).

use telegrad_rpc::Error;
use telegrad_testkit::on_cluster;

use super::*;

/// A value that signals its drop, and waits in the middle of it.
struct SlowDrop {
    board: Board,
    waits_for: &'static str,
    says: &'static str,
}

impl Drop for SlowDrop {
    fn drop(&mut self) {
        self.board.raise("dropping");
        self.board.wait(self.waits_for);
        self.board.raise(self.says);
    }
}

on_cluster! { alone: Cluster::threads(1) =>
    a_slow_drop_does_not_delay_another
    a_shutdown_waits_until_freed_values_are_dropped
    values_are_freed_with_their_world
    a_panic_in_a_drop_is_contained
}

fn a_slow_drop_does_not_delay_another(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let value = |waits_for, says| {
            let board = board.clone();
            let value = SlowDrop {
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
        let value = SlowDrop {
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

/// A value that holds a handle to its own world.
struct Actor {
    _world: World,
    _freed: RaiseOnDrop,
}

fn values_are_freed_with_their_world(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        let actor = Actor {
            _world: world.clone(),
            _freed: board.raise_on_drop("freed"),
        };
        let actor = RRef::hold(&world, actor).unwrap();
        world.shutdown().unwrap();
        assert_eq!(board.count("freed"), 1);
        assert!(matches!(actor.local_value().map(drop), Err(Error::ShutDown)));
    });
}

/// A value that panics when it is dropped.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

fn a_panic_in_a_drop_is_contained(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        drop(RRef::hold(&world, PanicsOnDrop).unwrap());
        let counter = Counter::new(0, Some(board.clone())).unwrap();
        drop(RRef::hold(&world, counter).unwrap());
        board.wait("freed");
        let last = RRef::hold(&world, PanicsOnDrop).unwrap();
        world.shutdown().unwrap();
        drop(last);
    });
}

/// As `Counter::slowly`, but without a thread, so that it can be cancelled.
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

/// Posts its result on the board, because its caller may be dead by then.
#[remote]
fn report(number: RRef<i64>, board: Board) {
    board.raise("kept");
    board.wait("use it");
    let number = number.to_here().map_err(|error| error.to_string());
    board.post("number", &format!("{number:?}"));
}

on_cluster! { three: Cluster::processes(3) =>
    a_value_that_another_depends_on_outlives_a_killed_worker
    a_value_that_none_depends_on_ends_with_a_killed_worker
}

fn a_value_that_another_depends_on_outlives_a_killed_worker(cluster: Cluster) {
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
        wait_for_no_references(&world);
    });
}

fn a_value_that_none_depends_on_ends_with_a_killed_worker(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        match world.rank() {
            0 => {
                board.wait("asked");
                board.kill(2);
                // Both creations are cancelled, that of the value and that of its number.
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
        wait_for_no_references(&world);
    });
}

/// Whether another worker still holds references to values here.
fn is_known(world: &World, name: &str) -> bool {
    let holds =
        |info: &telegrad_rpc::ReferenceInfo| info.holders.iter().any(|(holder, _)| holder.name == name);
    world.references().iter().any(holds)
}
