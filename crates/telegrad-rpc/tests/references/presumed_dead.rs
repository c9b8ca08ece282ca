//! A worker that counts as lost while it is only stopped: it does not come back (S31).

use telegrad_rpc::{Error, Options, ReferenceState};
use telegrad_testkit::{break_connections, on_cluster, stop_process};

use super::*;

on_cluster! { unix: Cluster::processes(2), tcp: Cluster::processes(2).tcp() =>
    a_worker_that_counts_as_lost_learns_of_it
}

#[remote]
fn process() -> u32 {
    std::process::id()
}

/// Gives rank 0 a short limit, but one that a busy worker meets. The other worker keeps the default, so that it learns
/// of its loss from rank 0 and does not lose rank 0 by itself.
fn impatient(options: &mut Options) {
    if options.rank == Some(0) {
        options.peer_timeout = SOON;
    }
}

fn a_worker_that_counts_as_lost_learns_of_it(cluster: Cluster) {
    let board = cluster.board();
    cluster.options(impatient).no_shutdown().run(move |world| {
        if world.rank() == 0 {
            lose_w1(&world, &board);
            board.wait("seen");
        } else {
            // A reference each, so that each tries to reconnect to the other.
            let counter = world.remote(0, Counter::new, (0, Some(board.clone()))).unwrap();
            assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 0);
            board.raise("held");
            board.wait("given up");
            assert_lost_by_w0(&world, &counter);
            board.raise("seen");
        }
        wait_for_no_references(&world);
    });
}

fn lose_w1(world: &World, board: &Board) {
    let counter = world.remote(1, Counter::new, (0, None)).unwrap();
    assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 0);
    board.wait("held");
    let stopped = stop_process(world.rpc_sync(1, process, ()).unwrap());
    assert!(break_connections() > 0);
    // The worker does not answer, although its process exists.
    let is_lost = || {
        world
            .references()
            .iter()
            .any(|info| info.state == ReferenceState::Lost)
    };
    wait_until(world, is_lost);
    board.wait("freed");
    let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
    assert!(matches!(error, Error::OwnerLost { .. }), "{error:?}");
    drop(stopped);
    board.raise("given up");
}

fn assert_lost_by_w0(world: &World, counter: &RRef<Counter>) {
    let started = Instant::now();
    // The connection broke while this process was stopped: the first call may only notice that.
    let error = loop {
        match world.rpc_sync(0, ping, ()).unwrap_err() {
            Error::WorkerLost { .. } if started.elapsed() < PATIENCE => {}
            other => break other,
        }
    };
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_refused(&error, "cannot connect to worker `w0`: ");
    // In turn, w0 counts as lost here.
    wait_until(world, || world.references()[0].state == ReferenceState::Lost);
    let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
    let start = "the `references::Counter` of this reference was lost with its owner, worker `w0`: ";
    assert_refused(&error, start);
}

/// Checks that w0 refused this worker, or told it over a connection that w0 had opened meanwhile.
#[track_caller]
fn assert_refused(error: &Error, start: &str) {
    let text = error.to_string();
    assert!(text.starts_with(start), "{text}");
    let refused = "worker `w0` counts `w1` as lost and has dropped its references";
    let told = "worker `w0` counts this worker as lost: ";
    assert!(text.contains(refused) || text.contains(told), "{text}");
}
