//! Creation requests that never arrive: every use of the reference fails with that reason (S32).

use telegrad_rpc::{Error, Options, RemoteErrorKind};
use telegrad_testkit::{break_connections, dropping_requests_of, on_cluster};

use super::failure::{GIVEN, give_slow_one};
use super::*;

on_cluster! { unix: Cluster::processes(3), tcp: Cluster::processes(3).tcp() =>
    a_request_lost_with_its_connection_appears_at_every_use
    a_request_lost_with_its_sender_appears_at_every_use
}

#[track_caller]
fn assert_never_made(error: &Error, why: &str) {
    assert_eq!(
        error.remote().map(|remote| remote.kind),
        Some(RemoteErrorKind::NoValue)
    );
    assert_eq!(
        error.to_string(),
        format!("worker `w1` has no value for `remote`: {why}")
    );
}

fn a_request_lost_with_its_connection_appears_at_every_use(cluster: Cluster) {
    let lossy = |options: &mut Options| {
        options.reference_retry = Duration::from_millis(50);
        if options.rank == Some(0) {
            options.link_layer = Some(dropping_requests_of("Counter::new"));
        }
    };
    on_rank_0(cluster.options(lossy), |world, board| {
        let counter = world.remote(1, Counter::new, (0, Some(board.clone()))).unwrap();
        assert!(!counter.confirmed_by_owner());
        assert!(break_connections() > 0);
        // After reconnecting, this worker and the owner agree on whether the request arrived.
        wait_until(&world, || counter.confirmed_by_owner());
        let why = "the request to make it was lost with the connection";
        for _ in 0..2 {
            assert_never_made(&counter.rpc_sync(Counter::get, ()).unwrap_err(), why);
        }
        // Other workers get the same error.
        let error = world.rpc_sync(2, add_to, (counter.clone(), 1)).unwrap_err();
        let text =
            format!("worker `w1` has no value for `remote` (called by `references::add_to` on `w2`): {why}");
        assert_eq!(error.to_string(), text);
        assert_eq!(board.count("freed"), 0);
    });
}

fn a_request_lost_with_its_sender_appears_at_every_use(cluster: Cluster) {
    let lossy = |options: &mut Options| {
        if options.rank == Some(2) {
            options.link_layer = Some(dropping_requests_of("Counter::slowly"));
        }
    };
    failure::on_rank_0_with_victim(cluster.options(lossy), 2, |world, board| {
        world.rpc_sync(2, give_slow_one, (1, 0, board.clone())).unwrap();
        let counter = GIVEN.lock().unwrap().pop().expect("a reference from w2");
        assert!(counter.confirmed_by_owner(), "the owner expects its value");
        let mut waiting = counter.rpc_async(Counter::get, ()).unwrap();
        assert_eq!(waiting.wait_timeout(Duration::from_millis(20)).unwrap(), None);
        board.kill(2);
        let why = "the worker that asked for it was lost before the request arrived";
        assert_never_made(&waiting.wait().unwrap_err(), why);
        assert_never_made(&counter.rpc_sync(Counter::get, ()).unwrap_err(), why);
        assert_eq!(board.count("making"), 0);
    });
}
