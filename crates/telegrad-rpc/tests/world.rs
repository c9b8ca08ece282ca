//! How a world starts, meets at barriers, and starts again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use telegrad_rpc::{
    Error, Options, Result, StoreServer, Transport, WorkerInfo, World, init, init_with, remote,
};
use telegrad_testkit::{
    Cluster, Rendezvous, float_tensor, on_cluster, on_every_cluster, on_threads_and_processes,
};

#[remote]
fn name() -> Result<String> {
    Ok(World::current()?.name().into())
}

fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

on_every_cluster! { 3 =>
    members_know_each_others_names_and_ranks
    a_barrier_waits_for_all_members
    all_gather_returns_the_values_of_all_members_by_rank
}

fn members_know_each_others_names_and_ranks(cluster: Cluster) {
    cluster.names(&["a", "b", "c"]).run(|world| {
        let info = |name: &str, rank| WorkerInfo {
            name: name.into(),
            rank,
        };
        assert_eq!(
            world.get_worker_infos(),
            [info("a", 0), info("b", 1), info("c", 2)]
        );
        assert_eq!(world.get_worker_info("b").unwrap(), info("b", 1));
        assert_eq!(world.get_worker_info(2).unwrap(), info("c", 2));
        assert_eq!(world.get_worker_info(world.rank()).unwrap().name, world.name());
        assert_eq!(
            (world.size(), info("b", 1).to_string().as_str()),
            (3, "`b` (rank 1)")
        );
        let error = world.get_worker_info("d").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no worker `d` in this world of `a`, `b`, `c`"
        );
    });
}

fn a_barrier_waits_for_all_members(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        for round in 1..=20 {
            board.raise("came");
            world.barrier().unwrap();
            assert!(board.count("came") >= 3 * round, "round {round}");
        }
    });
}

fn all_gather_returns_the_values_of_all_members_by_rank(cluster: Cluster) {
    cluster.run(|world| {
        for round in 0..5 {
            let value = |rank: u32| {
                let tensor = float_tensor(&[2], vec![rank as f32, -(rank as f32)]);
                (rank, format!("{round} from w{rank}"), tensor)
            };
            let mine = value(world.rank());
            let expected = (0..3).map(value);
            assert_eq!(world.all_gather(&mine).unwrap(), expected.collect::<Vec<_>>());
        }
        let large = vec![world.rank() as u8; 500_000];
        let all = world.all_gather(&large).unwrap();
        assert!(all.into_iter().eq((0..3).map(|rank| vec![rank; 500_000])));
    });
}

on_threads_and_processes! { 2 =>
    a_barrier_names_the_missing_members
}

fn a_barrier_names_the_missing_members(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let started = Instant::now();
        let hasty = world.with_timeout(Duration::from_millis(200));
        let error = hasty.barrier().unwrap_err();
        assert!(matches!(error, Error::Incomplete { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the barrier was not completed within 200ms: still missing `w1`"
        );
        let error = hasty.all_gather(&1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the gather was not completed within 200ms: still missing `w1`"
        );
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
        board.raise("over");
    });
}

/// Runs a world of two that meets by `init_method`: joins, calls both ways, shuts down.
fn run_world(init_method: &str, transport: Transport, store: Option<StoreServer>) {
    let mut store = store;
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let options = Options::default()
                .init_method(init_method)
                .rank(rank)
                .world_size(2)
                .transport(transport)
                .rendezvous_timeout(Duration::from_secs(20))
                .shutdown_timeout(Duration::from_secs(20))
                .store(if rank == 0 { store.take() } else { None });
            scope.spawn(move || {
                let world = init_with(&format!("m{rank}"), options).unwrap();
                let other = 1 - rank;
                assert_eq!(world.rpc_sync(other, name, ()).unwrap(), format!("m{other}"));
                world.shutdown().unwrap();
            });
        }
    });
}

#[test]
fn a_rendezvous_limit_of_zero_fails_at_once() {
    let alone = Options::default()
        .init_method(format!("mem://hasty-{}?rank=0&world_size=2", unique()))
        .rendezvous_timeout(Duration::ZERO);
    let started = Instant::now();
    let error = init_with("m0", alone).map(drop).unwrap_err();
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let text = "the world of 2 workers was not complete after 0ns: still missing rank 1";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_rendezvous_without_a_limit_waits_for_all_members() {
    let init_method = format!("mem://patient-{}?world_size=2", unique());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let options = Options::default()
                .init_method(init_method.clone())
                .rank(rank)
                .rendezvous_timeout(None);
            scope.spawn(move || {
                let world = init_with(&format!("m{rank}"), options).unwrap();
                world.shutdown().unwrap();
            });
        }
    });
}

#[test]
fn a_world_can_start_again_in_memory() {
    let init_method = format!("mem://again-{}", unique());
    for _ in 0..10 {
        run_world(&init_method, Transport::Auto, None);
        run_world(&init_method, Transport::Unix, None);
    }
}

#[test]
fn a_world_can_start_again_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let init_method = format!("file://{}", directory.path().join("store").display());
    for _ in 0..10 {
        run_world(&init_method, Transport::Auto, None);
    }
}

#[test]
fn a_world_can_start_again_at_a_port() {
    let first = StoreServer::bind("127.0.0.1:0").unwrap();
    let init_method = format!("tcp://{}", first.address());
    run_world(&init_method, Transport::Tcp, Some(first));
    for _ in 0..10 {
        run_world(&init_method, Transport::Tcp, None);
    }
}

#[test]
fn a_world_can_start_again_after_its_handles_are_dropped() {
    let init_method = format!("mem://abrupt-{}", unique());
    for _ in 0..5 {
        let joined = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let options = Options::default()
                    .init_method(format!("{init_method}?rank={rank}&world_size=2"))
                    .rendezvous_timeout(Duration::from_secs(20));
                let joined = &joined;
                scope.spawn(move || {
                    let world = init_with(&format!("m{rank}"), options).unwrap();
                    joined.wait();
                    drop(world);
                });
            }
        });
    }
}

#[test]
fn a_failed_start_can_be_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file://{}", directory.path().join("store").display());
    let first = StoreServer::bind("127.0.0.1:0").unwrap();
    let port = format!("tcp://{}", first.address());
    drop(first);
    for init_method in [format!("mem://retried-{}", unique()), file, port] {
        // Rank 0 joins alone, and times out. Then both join.
        let hasty = Options::default()
            .init_method(init_method.clone())
            .rank(0)
            .world_size(2)
            .rendezvous_timeout(Duration::from_millis(50));
        let error = init_with("m0", hasty).unwrap_err();
        assert!(error.to_string().ends_with("still missing rank 1"), "{error}");
        run_world(&init_method, Transport::Tcp, None);
    }
}

#[test]
fn members_meet_by_environment_variables() {
    // The port of a closed store is free, and the system does not assign it again so soon.
    let port = StoreServer::bind("127.0.0.1:0").unwrap().address().port();
    let cluster = Cluster::processes(2);
    cluster
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", &port.to_string())
        .env("WORLD_SIZE", "2")
        .run_by_hand(|member| {
            let world = match member.rank() {
                // The environment has everything but the rank.
                0 => init_with("first", Options::default().rank(0)),
                _ => init_with("second", Options::default().init_method("env://?rank=1")),
            };
            let world = world.unwrap();
            assert_eq!(world.rpc_sync("first", name, ()).unwrap(), "first");
            assert_eq!(world.rpc_sync("second", name, ()).unwrap(), "second");
            world.shutdown().unwrap();
        });
}

#[test]
fn environment_variables_alone_describe_a_world_of_one() {
    let port = StoreServer::bind("127.0.0.1:0").unwrap().address().port();
    Cluster::processes(1)
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", &port.to_string())
        .env("WORLD_SIZE", "1")
        .env("RANK", "0")
        .run_by_hand(|_| {
            let world = init("alone").unwrap();
            assert_eq!(world.rpc_sync("alone", name, ()).unwrap(), "alone");
            world.shutdown().unwrap();
        });
}

on_cluster! { four_threads: Cluster::threads(4), four_processes: Cluster::processes(4) =>
    members_meet_at_a_store_on_a_port_of_the_systems_choice
}

fn members_meet_at_a_store_on_a_port_of_the_systems_choice(cluster: Cluster) {
    cluster.rendezvous(Rendezvous::Tcp).run(|world| {
        assert_eq!(world.all_gather(&world.rank()).unwrap(), [0, 1, 2, 3]);
    });
}

#[test]
fn members_meet_in_a_file() {
    Cluster::threads(4).rendezvous(Rendezvous::File).run(|world| {
        assert_eq!(world.all_gather(&world.rank()).unwrap(), [0, 1, 2, 3]);
    });
}
