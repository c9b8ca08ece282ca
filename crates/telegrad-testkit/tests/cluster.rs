//! The testkit itself: clusters and the reports of their failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use telegrad_rpc::{Transport, World};
use telegrad_testkit::{Board, Cluster, Rendezvous, on_every_cluster, on_threads_and_processes, within};

#[telegrad_rpc::remote]
fn process() -> u32 {
    std::process::id()
}

#[telegrad_rpc::remote]
fn raise(board: Board, signal: String) {
    board.raise(&signal);
}

/// The panic's text of a failing run. Does not return in a process of the cluster.
fn failure(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the run should have failed");
    let text = panic.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| {
        panic
            .downcast_ref::<&str>()
            .expect("a panic with a text")
            .to_string()
    })
}

on_every_cluster! { 3 => every_member_has_its_own_world members_share_one_board }

fn every_member_has_its_own_world(cluster: Cluster) {
    let processes = cluster.is_processes();
    cluster.run(move |world| {
        assert_eq!(
            (world.name(), world.size()),
            (format!("w{}", world.rank()).as_str(), 3)
        );
        let ids: Vec<_> = (0..3)
            .map(|rank| world.rpc_sync(rank, process, ()).unwrap())
            .collect();
        assert_eq!(ids[world.rank() as usize], std::process::id());
        assert_eq!(
            ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2],
            processes,
            "{ids:?}"
        );
    });
}

fn members_share_one_board(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        // From the body, from a remote function, and with a value.
        board.raise("here");
        board.wait_for("here", 3);
        let next = (world.rank() + 1) % 3;
        world
            .rpc_sync(next, raise, (board.clone(), "called".into()))
            .unwrap();
        board.wait_for("called", 3);
        if world.rank() == 1 {
            board.post("value", "two words\nand a line");
        }
        assert_eq!(board.read("value"), "two words\nand a line");
        assert_eq!(board.count("never"), 0);
    });
}

on_threads_and_processes! { 2 =>
    names_and_options_reach_the_members
    members_meet_over_tcp
    members_meet_in_a_file
    a_panic_fails_the_test_and_names_the_worker
    a_panic_ends_the_others_at_once
    a_body_that_hangs_is_ended_and_named
    a_member_that_cannot_join_fails_the_test
    an_expected_death_does_not_fail_the_test
    a_test_can_have_many_clusters
}

fn names_and_options_reach_the_members(cluster: Cluster) {
    let change =
        |options: &mut telegrad_rpc::Options| options.rpc_timeout = Some(Duration::from_millis(1500));
    cluster.names(&["left", "right"]).options(change).run(|world| {
        let names: Vec<_> = world
            .get_worker_infos()
            .into_iter()
            .map(|info| info.name)
            .collect();
        assert_eq!(names, ["left", "right"]);
        let error = world.rpc_sync("left", forever, ()).unwrap_err().to_string();
        assert!(error.contains("limit of 1.5s"), "{error}");
    });
}

#[telegrad_rpc::remote]
async fn forever() {
    std::future::pending::<()>().await;
}

fn members_meet_over_tcp(cluster: Cluster) {
    cluster
        .rendezvous(Rendezvous::Tcp)
        .run(|world| world.barrier().unwrap());
}

fn members_meet_in_a_file(cluster: Cluster) {
    cluster
        .rendezvous(Rendezvous::File)
        .run(|world| world.barrier().unwrap());
}

fn a_panic_fails_the_test_and_names_the_worker(cluster: Cluster) {
    let processes = cluster.is_processes();
    let text = failure(|| {
        cluster
            .names(&["good", "bad"])
            .run(|world| assert!(world.rank() != 1, "I am {}", world.name()));
    });
    assert!(text.contains("worker `bad` (rank 1) panicked"), "{text}");
    assert!(text.contains("I am bad"), "{text}");
    if processes {
        assert!(text.contains("--- output of `bad`\nbad | "), "{text}");
    }
}

fn a_panic_ends_the_others_at_once(cluster: Cluster) {
    let started = Instant::now();
    let text = failure(|| {
        cluster.run(|world| {
            assert!(world.rank() != 0, "first");
            // Waits for rank 0, which never calls.
            let _ = world.barrier();
        });
    });
    assert!(text.contains("worker `w0` (rank 0) panicked"), "{text}");
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

fn a_body_that_hangs_is_ended_and_named(cluster: Cluster) {
    let started = Instant::now();
    let text = failure(|| {
        cluster
            .no_shutdown()
            .time_limit(Duration::from_secs(2))
            .run(|world| {
                if world.rank() == 1 {
                    let _ = world.with_timeout(None).rpc_sync(1, forever, ());
                    // The end of the world does not end a body that waits for another event.
                    loop {
                        std::thread::park();
                    }
                }
            });
    });
    assert!(text.contains("not finished within 2s: "), "{text}");
    assert!(text.contains("worker `w1` (rank 1)"), "{text}");
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

fn a_member_that_cannot_join_fails_the_test(cluster: Cluster) {
    let change = |options: &mut telegrad_rpc::Options| {
        options.rendezvous_timeout = Some(Duration::from_millis(300));
        options.init_method = options.init_method.clone() + &format!("-{}", options.rank.unwrap());
    };
    let text = failure(|| cluster.options(change).run(|_| unreachable!("no member joins")));
    assert!(
        text.contains("cannot join: the world of 2 workers was not complete"),
        "{text}"
    );
}

fn an_expected_death_does_not_fail_the_test(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(1).run(move |world: World| {
        board.raise("here");
        board.wait_for("here", 2);
        assert!(world.rank() != 1, "on purpose");
    });
}

fn a_test_can_have_many_clusters(cluster: Cluster) {
    let processes = cluster.is_processes();
    let name = cluster.board().count("none");
    assert_eq!(name, 0);
    cluster.run(|world| world.barrier().unwrap());
    let make = || {
        if processes {
            Cluster::processes(2)
        } else {
            Cluster::threads(2)
        }
    };
    for round in 0..2 {
        let test = concat!("cluster::processes::", stringify!(a_test_can_have_many_clusters));
        make()
            .of_test(test)
            .names(&["a", &format!("b{round}")])
            .run(move |world| {
                assert_eq!(world.get_worker_info(1).unwrap().name, format!("b{round}"));
            });
    }
}

/// The name comes from the thread, the arguments, or the closure's path.
#[test]
fn processes_find_their_test_without_a_given_name() {
    Cluster::processes(2).run(|world| world.barrier().unwrap());
    Cluster::threads(2).run(|world| world.barrier().unwrap());
    Cluster::processes(1)
        .names(&["last"])
        .run(|world| assert_eq!(world.name(), "last"));
}

#[test]
fn a_killed_process_is_named() {
    let cluster = Cluster::processes(2);
    let board = cluster.board();
    let text = failure(|| {
        cluster.run(move |world| {
            if world.rank() == 0 {
                board.kill(1);
            }
            let _ = world.barrier();
        });
    });
    assert!(text.contains("worker `w1` (rank 1) died: signal: 9"), "{text}");
}

#[test]
fn a_process_that_exits_early_is_named() {
    let text = failure(|| {
        Cluster::processes(2).run(|world| {
            if world.rank() == 1 {
                std::process::exit(7);
            }
            let _ = world.barrier();
        });
    });
    assert!(
        text.contains("worker `w1` (rank 1) died: exit status: 7"),
        "{text}"
    );
}

#[test]
fn a_process_that_misses_its_cluster_is_named() {
    let text = failure(|| Cluster::processes(1).of_test("cluster::no_such_test").run(|_| ()));
    assert!(
        text.contains("worker `w0` (rank 0) did not reach its cluster in the test `no_such_test`"),
        "{text}"
    );
}

#[test]
fn threads_cannot_be_killed() {
    let text = catch_unwind(|| Board::new().kill(0)).unwrap_err();
    let text = text.downcast_ref::<&str>().unwrap();
    assert_eq!(*text, "only the members of Cluster::processes can be killed");
}

#[test]
fn every_body_runs_once() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    Cluster::threads(5).transport(Transport::Mem).run(move |_| {
        counted.fetch_add(1, SeqCst);
    });
    assert_eq!(runs.load(SeqCst), 5);
}

#[test]
fn within_returns_the_value_or_panics() {
    assert_eq!(within(Duration::from_secs(10), || 3), 3);
    let text = failure(|| within(Duration::from_secs(10), || panic!("{} is it", "this")));
    assert_eq!(text, "this is it");
    let text = failure(|| {
        within(Duration::from_millis(20), || {
            loop {
                std::thread::park();
            }
        })
    });
    assert_eq!(text, "not done within 20ms");
}
