//! How a world starts, meets and ends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use telegrad_rpc::{
    Error, Options, Result, StoreServer, Transport, WorkerInfo, World, init, init_with, remote,
};
use telegrad_testkit::{Cluster, Meeting, on_cluster, on_every_cluster, on_threads_and_processes};
use telegrad_wire::{Buffer, DType, RawTensor, TensorMeta};

#[remote]
fn name() -> Result<String> {
    Ok(World::current()?.name().into())
}

fn tensor(value: f32) -> RawTensor {
    let meta = TensorMeta {
        dtype: DType::F32,
        shape: vec![2],
    };
    RawTensor::new(meta, Buffer::from_vec(vec![value, -value])).unwrap()
}

fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

on_every_cluster! { 3 =>
    members_know_each_other
    a_barrier_waits_for_everybody
    a_gathering_gives_everybodys_value_by_rank
}

fn members_know_each_other(cluster: Cluster) {
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

fn a_barrier_waits_for_everybody(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        for round in 1..=20 {
            board.raise("came");
            world.barrier().unwrap();
            assert!(board.count("came") >= 3 * round, "round {round}");
        }
    });
}

fn a_gathering_gives_everybodys_value_by_rank(cluster: Cluster) {
    cluster.run(|world| {
        for round in 0..5 {
            let mine = (
                world.rank(),
                format!("{round} from {}", world.name()),
                tensor(world.rank() as f32),
            );
            let expected = (0..3).map(|rank| (rank, format!("{round} from w{rank}"), tensor(rank as f32)));
            assert_eq!(world.all_gather(&mine).unwrap(), expected.collect::<Vec<_>>());
        }
        let large = vec![world.rank() as u8; 500_000];
        let all = world.all_gather(&large).unwrap();
        assert!(all.into_iter().eq((0..3).map(|rank| vec![rank; 500_000])));
    });
}

on_threads_and_processes! { 2 =>
    a_barrier_that_somebody_misses_names_them
}

fn a_barrier_that_somebody_misses_names_them(cluster: Cluster) {
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
            "the gathering was not completed within 200ms: still missing `w1`"
        );
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
        board.raise("over");
    });
}

/// Joins a world of two at a place, calls both ways, and leaves.
fn meet(place: &str, transport: Transport, store: Option<StoreServer>) {
    let mut store = store;
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let options = Options::default()
                .init_method(place)
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
fn a_rendezvous_without_time_fails_at_once() {
    let alone = Options::default()
        .init_method(format!("mem://hasty-{}?rank=0&world_size=2", unique()))
        .rendezvous_timeout(Duration::ZERO);
    let started = Instant::now();
    let error = init_with("m0", alone).unwrap_err();
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let text = "the world of 2 workers was not complete after 0ns: still missing rank 1";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_rendezvous_without_a_limit_waits() {
    let place = format!("mem://patient-{}?world_size=2", unique());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let options = Options::default()
                .init_method(place.clone())
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
    let place = format!("mem://again-{}", unique());
    for _ in 0..10 {
        meet(&place, Transport::Auto, None);
        meet(&place, Transport::Unix, None);
    }
}

#[test]
fn a_world_can_start_again_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let place = format!("file://{}", directory.path().join("store").display());
    for _ in 0..10 {
        meet(&place, Transport::Auto, None);
    }
}

#[test]
fn a_world_can_start_again_at_a_port() {
    let first = StoreServer::bind("127.0.0.1:0").unwrap();
    let place = format!("tcp://{}", first.address());
    meet(&place, Transport::Tcp, Some(first));
    for _ in 0..10 {
        meet(&place, Transport::Tcp, None);
    }
}

#[test]
fn a_world_can_start_again_after_an_immediate_end() {
    let place = format!("mem://abrupt-{}", unique());
    for _ in 0..5 {
        let joined = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let options = Options::default()
                    .init_method(format!("{place}?rank={rank}&world_size=2"))
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
fn a_start_that_failed_can_be_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file://{}", directory.path().join("store").display());
    let first = StoreServer::bind("127.0.0.1:0").unwrap();
    let port = format!("tcp://{}", first.address());
    drop(first);
    for place in [format!("mem://retried-{}", unique()), file, port] {
        // Rank 0 comes alone, and gives up. Then both come.
        let hasty = Options::default()
            .init_method(place.clone())
            .rank(0)
            .world_size(2)
            .rendezvous_timeout(Duration::from_millis(50));
        let error = init_with("m0", hasty).unwrap_err();
        assert!(error.to_string().ends_with("still missing rank 1"), "{error}");
        meet(&place, Transport::Tcp, None);
    }
}

#[test]
fn members_find_each_other_through_the_environment() {
    // The port of a store that is gone is free, and this host gives it to nobody else so soon.
    let port = StoreServer::bind("127.0.0.1:0").unwrap().address().port();
    let cluster = Cluster::processes(2);
    cluster
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", &port.to_string())
        .env("WORLD_SIZE", "2")
        .run_by_hand(|member| {
            let world = match member.rank() {
                // Nothing but the environment, for one whose rank is there too.
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
fn a_world_of_one_is_described_by_the_environment_alone() {
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

on_cluster! { four_threads: Cluster::threads(4) => members_meet_over_a_store_on_a_port_of_the_systems_choice }
on_cluster! { four_processes: Cluster::processes(4) => members_meet_over_a_store_on_a_port_of_the_systems_choice }

fn members_meet_over_a_store_on_a_port_of_the_systems_choice(cluster: Cluster) {
    cluster.meeting(Meeting::Tcp).run(|world| {
        assert_eq!(world.all_gather(&world.rank()).unwrap(), [0, 1, 2, 3]);
    });
}

#[test]
fn members_meet_in_a_file() {
    Cluster::threads(4).meeting(Meeting::File).run(|world| {
        assert_eq!(world.all_gather(&world.rank()).unwrap(), [0, 1, 2, 3]);
    });
}
