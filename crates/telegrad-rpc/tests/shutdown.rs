//! The end of a world: workers that still serve, members that are lost, time limits.

use std::time::Duration;

use telegrad_rpc::{Error, Options, RRef, Result, World, remote};
use telegrad_testkit::{Board, Cluster, on_cluster, on_every_cluster, within};

/// Far shorter than the waits of members in these tests.
const SHORT: Duration = Duration::from_millis(100);

/// Longer than a limit of `SHORT` takes to expire, on a busy machine too.
const LONG: Duration = Duration::from_millis(800);

#[remote]
fn name() -> Result<String> {
    Ok(World::current()?.name().into())
}

#[remote]
async fn never_ready(board: Board) {
    board.raise("running");
    std::future::pending::<()>().await;
}

/// Calls all members while they shut down.
#[remote]
fn call_all(board: Board) -> Result<()> {
    board.wait_for("about to shut down", 3);
    let world = World::current()?;
    for _ in 0..20 {
        for rank in 0..3 {
            assert_eq!(world.rpc_sync(rank, name, ())?, format!("w{rank}"));
        }
    }
    board.raise("worked");
    Ok(())
}

/// Makes detached calls of itself on all members.
#[remote]
fn spread(depth: u32, board: Board) -> Result<()> {
    let world = World::current()?;
    board.raise("ran");
    if depth > 0 {
        for rank in 0..3 {
            world
                .rpc_async(rank, spread, (depth - 1, board.clone()))?
                .detach();
        }
    }
    Ok(())
}

on_every_cluster! { 3 =>
    a_shutdown_waits_for_a_function_that_calls_members_in_shutdown
    a_shutdown_waits_for_detached_calls_that_make_more_calls
    calls_after_a_shutdown_are_refused
}

fn a_shutdown_waits_for_a_function_that_calls_members_in_shutdown(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 2 {
            world.rpc_async(1, call_all, (board.clone(),)).unwrap().detach();
        }
        board.raise("about to shut down");
        world.shutdown().unwrap();
        assert_eq!(board.count("worked"), 1);
    });
}

fn a_shutdown_waits_for_detached_calls_that_make_more_calls(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            world.rpc_async(1, spread, (4, board.clone())).unwrap().detach();
        }
        world.shutdown().unwrap();
        assert_eq!(board.count("ran"), 1 + 3 + 9 + 27 + 81);
    });
}

fn calls_after_a_shutdown_are_refused(cluster: Cluster) {
    cluster.run(|world| {
        world.shutdown().unwrap();
        for rank in 0..3 {
            let error = world.rpc_sync(rank, name, ()).unwrap_err();
            assert!(matches!(error, Error::ShutDown), "{error:?}");
            assert_eq!(error.to_string(), "this world has been shut down");
        }
        assert!(matches!(world.barrier().unwrap_err(), Error::ShutDown));
        // A repeated shutdown is a success.
        world.shutdown().unwrap();
        world.clone().shutdown().unwrap();
        world.shutdown_now();
    });
}

on_cluster! { two_threads: Cluster::threads(2), two_processes: Cluster::processes(2) =>
    a_shutdown_names_the_missing_members
    an_immediate_shutdown_fails_calls_on_both_sides
    dropping_the_last_handle_ends_the_worker
}

fn a_shutdown_names_the_missing_members(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let error = world.shutdown_within(Duration::from_millis(200)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("the shutdown was not completed within "),
            "{text}"
        );
        assert!(text.ends_with(": still missing `w1`"), "{text}");
        assert!(
            matches!(world.rpc_sync(0, name, ()), Err(Error::ShutDown)),
            "the world has ended nevertheless"
        );
        board.raise("over");
    });
}

fn an_immediate_shutdown_fails_calls_on_both_sides(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        let other = 1 - world.rank();
        let call = world.rpc_async(other, never_ready, (board.clone(),)).unwrap();
        board.wait_for("running", 2);
        if world.rank() == 0 {
            world.shutdown_now();
        }
        let error = within(Duration::from_secs(10), move || call.wait()).unwrap_err();
        assert!(
            matches!(error, Error::WorkerLost { .. } | Error::ShutDown),
            "{error:?}"
        );
    });
}

fn dropping_the_last_handle_ends_the_worker(cluster: Cluster) {
    let board = cluster.board();
    cluster.run_by_hand(move |member| {
        let world = member.init().unwrap();
        if member.rank() == 1 {
            board.wait("running");
            let last = world.clone();
            drop(world);
            assert_eq!(
                last.rpc_sync(0, name, ()).unwrap(),
                "w0",
                "another handle keeps the worker"
            );
            drop(last);
        } else {
            let error = world.rpc_sync(1, never_ready, (board.clone(),)).unwrap_err();
            assert!(matches!(error, Error::WorkerLost { .. }), "{error:?}");
            board.raise("seen");
        }
        board.wait("seen");
        member.wait_for_all();
    });
}

on_cluster! {
    serving_threads: Cluster::threads(2),
    serving_unix: Cluster::processes(2),
    serving_tcp: Cluster::processes(2).tcp() =>
    serving_a_call_stops_the_clock_of_a_shutdown
    a_pending_call_stops_the_clock_of_a_shutdown
    serve_has_no_time_limit
    an_immediate_shutdown_ends_serve
    a_shutdown_inside_a_remote_function_is_refused
}

#[remote]
fn hold(board: Board) {
    board.raise("running");
    board.wait("go");
}

#[test]
fn a_shutdown_has_no_time_limit_by_default() {
    assert_eq!(Options::default().shutdown_timeout, None);
}

fn serving_a_call_stops_the_clock_of_a_shutdown(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            board.wait("running");
            return world.shutdown_within(SHORT).unwrap();
        }
        let call = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        board.wait("running");
        std::thread::sleep(LONG);
        board.raise("go");
        call.wait().unwrap();
        world.shutdown().unwrap();
    });
}

fn a_pending_call_stops_the_clock_of_a_shutdown(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            board.wait("running");
            std::thread::sleep(LONG);
            board.raise("go");
            return world.shutdown().unwrap();
        }
        world.rpc_async(1, hold, (board.clone(),)).unwrap().detach();
        board.wait("running");
        world.shutdown_within(SHORT).unwrap();
    });
}

fn serve_has_no_time_limit(cluster: Cluster) {
    let cluster = cluster.options(|options| options.shutdown_timeout = Some(SHORT));
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            return world.serve().unwrap();
        }
        std::thread::sleep(LONG);
        assert_eq!(world.rpc_sync(1, name, ()).unwrap(), "w1");
        world.serve().unwrap();
    });
}

fn an_immediate_shutdown_ends_serve(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let serving = world.clone();
        let serving = std::thread::spawn(move || serving.serve());
        while !world.status().is_leaving {
            std::thread::yield_now();
        }
        world.shutdown_now();
        within(Duration::from_secs(10), move || serving.join().unwrap()).unwrap();
        board.raise("over");
    });
}

#[remote]
fn shut_down_inside() -> Result<()> {
    World::current()?.shutdown()
}

fn a_shutdown_inside_a_remote_function_is_refused(cluster: Cluster) {
    cluster.run(|world| {
        let error = world
            .rpc_sync(1 - world.rank(), shut_down_inside, ())
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("the remote function `shutdown::shut_down_inside` called `shutdown`"),
            "{text}"
        );
        world.barrier().unwrap();
    });
}

on_cluster! { losses_unix: Cluster::processes(3), losses_tcp: Cluster::processes(3).tcp() =>
    a_shutdown_completes_without_a_lost_member
    a_shutdown_completes_without_a_lost_member_that_was_never_called
    a_shutdown_completes_without_a_member_lost_during_it
    a_shutdown_completes_without_its_leader
    a_shutdown_completes_without_a_leader_lost_during_it
    a_shutdown_completes_without_a_member_that_left_at_once
    survivors_keep_working_and_shut_down
}

/// Kills a member before the others shut down. With `met`, all have passed a barrier before.
fn lose(cluster: Cluster, victim: u32, met: bool) {
    let board = cluster.board();
    cluster.may_die(victim).run(move |world| {
        if met {
            world.barrier().unwrap();
        }
        board.raise("ready");
        board.wait_for("ready", 3);
        if world.rank() == victim {
            return board.wait("never");
        }
        if world.rank() == (victim + 1) % 3 {
            board.kill(victim);
            board.raise("killed");
        }
        board.wait("killed");
        world.shutdown().unwrap();
        board.raise("shut down");
        board.wait_for("shut down", 2);
    });
}

fn a_shutdown_completes_without_a_lost_member(cluster: Cluster) {
    lose(cluster, 2, true);
}

fn a_shutdown_completes_without_a_lost_member_that_was_never_called(cluster: Cluster) {
    lose(cluster, 2, false);
}

fn a_shutdown_completes_without_its_leader(cluster: Cluster) {
    lose(cluster, 0, true);
}

/// Kills a member that is shutting down, before the last of the others starts to.
fn lose_in_shutdown(cluster: Cluster, victim: u32) {
    let board = cluster.board();
    cluster.may_die(victim).run(move |world| {
        let last = (victim + 1) % 3;
        if world.rank() != last {
            let watched = world.clone();
            let board = board.clone();
            std::thread::spawn(move || {
                while !watched.status().is_leaving {
                    std::thread::yield_now();
                }
                board.raise("in the shutdown");
            });
        } else {
            board.wait_for("in the shutdown", 2);
            board.kill(victim);
            // The other member in shutdown still serves.
            let other = 3 - victim - last;
            assert_eq!(world.rpc_sync(other, name, ()).unwrap(), format!("w{other}"));
        }
        world.shutdown().unwrap();
    });
}

fn a_shutdown_completes_without_a_member_lost_during_it(cluster: Cluster) {
    lose_in_shutdown(cluster, 2);
}

fn a_shutdown_completes_without_a_leader_lost_during_it(cluster: Cluster) {
    lose_in_shutdown(cluster, 0);
}

fn a_shutdown_completes_without_a_member_that_left_at_once(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        world.barrier().unwrap();
        if world.rank() == 0 {
            board.wait_for("passed", 2);
            return world.shutdown_now();
        }
        board.raise("passed");
        world.shutdown().unwrap();
    });
}

fn survivors_keep_working_and_shut_down(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        match world.rank() {
            0 => {
                let held: RRef<String> = world.remote(2, name, ()).unwrap();
                assert_eq!(held.to_here().unwrap(), "w2");
                board.kill(2);
                while world.rpc_sync(2, name, ()).is_ok() {}
                for _ in 0..50 {
                    assert_eq!(world.rpc_sync(1, name, ()).unwrap(), "w1");
                }
                assert!(world.barrier().is_err(), "a barrier needs all members");
            }
            1 => {}
            _ => return board.wait("never"),
        }
        world.shutdown().unwrap();
    });
}
