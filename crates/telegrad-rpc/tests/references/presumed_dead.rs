//! A worker that counts as gone and is not: it does not come back (S31).

use telegrad_rpc::{Error, Options, ReferenceState};
use telegrad_testkit::{break_connections, on_cluster, stop_process};

use super::*;

on_cluster! { unix: Cluster::processes(2) => a_worker_that_was_given_up_hears_of_it }

on_cluster! { tcp: Cluster::processes(2).tcp() => a_worker_that_was_given_up_hears_of_it }

#[remote]
fn process() -> u32 {
    std::process::id()
}

/// Long enough to find a worker that is only busy. The other one is patient: it is to hear of it, not to
/// come to the same conclusion.
fn impatient(options: &mut Options) {
    if options.rank == Some(0) {
        options.peer_timeout = SOON;
    }
}

fn a_worker_that_was_given_up_hears_of_it(cluster: Cluster) {
    let board = cluster.board();
    cluster.options(impatient).no_shutdown().run(move |world| {
        if world.rank() == 0 {
            give_up_w1(&world, &board);
            board.wait("seen");
        } else {
            // A reference each, so that they look for each other.
            let counter = world.remote(0, Counter::new, (0, Some(board.clone()))).unwrap();
            assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 0);
            board.raise("held");
            board.wait("given up");
            see_what_w0_says(&world, &counter);
            board.raise("seen");
        }
        wait_for_nothing(&world);
    });
}

fn give_up_w1(world: &World, board: &Board) {
    let counter = world.remote(1, Counter::new, (0, None)).unwrap();
    assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 0);
    board.wait("held");
    let stopped = stop_process(world.rpc_sync(1, process, ()).unwrap());
    assert!(break_connections() > 0);
    // It does not answer, and it is not gone.
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

fn see_what_w0_says(world: &World, counter: &RRef<Counter>) {
    let started = Instant::now();
    // The connection broke while this process stood still: it may have to find that out first.
    let error = loop {
        match world.rpc_sync(0, ping, ()).unwrap_err() {
            Error::WorkerLost { .. } if started.elapsed() < PATIENCE => {}
            other => break other,
        }
    };
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_refused(&error, "cannot connect to worker `w0`: ");
    // So neither does w0 exist for this one any more.
    wait_until(world, || world.references()[0].state == ReferenceState::Lost);
    let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
    let start = "the `references::Counter` of this reference was lost with its owner, worker `w0`: ";
    assert_refused(&error, start);
}

/// Refused when it calls, or told by way of a connection that the other had tried to make meanwhile.
#[track_caller]
fn assert_refused(error: &Error, start: &str) {
    let text = error.to_string();
    assert!(text.starts_with(start), "{text}");
    let refused = "worker `w0` counts `w1` as gone and has given up what it held";
    let told = "worker `w0` counts this one as gone: ";
    assert!(text.contains(refused) || text.contains(told), "{text}");
}
