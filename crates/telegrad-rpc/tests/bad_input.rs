//! Bad input from users: names, ranks, addresses, incomplete worlds. Bad input from peers is in `foreign`.

use std::time::Duration;

use telegrad_rpc::{Error, Options, RendezvousError, StoreServer, Transport, init, init_with, remote};
use telegrad_testkit::{Cluster, Log, on_cluster, on_threads_and_processes};

#[remote]
fn nothing() {}

/// Returns the options of one member of a world that a test makes by itself.
fn member(init_method: &str, rank: u32, world_size: u32) -> Options {
    Options::default()
        .init_method(init_method)
        .rank(rank)
        .world_size(world_size)
        .rendezvous_timeout(Duration::from_secs(20))
}

/// Fails to join a world, and returns the error's text.
fn init_error(name: &str, options: Options) -> String {
    init_with(name, options)
        .map(|world| panic!("{world:?}"))
        .unwrap_err()
        .to_string()
}

on_threads_and_processes! { 2 => an_unknown_worker_is_named_with_the_known_ones }

fn an_unknown_worker_is_named_with_the_known_ones(cluster: Cluster) {
    cluster.names(&["left", "right"]).run(|world| {
        let error = world.rpc_sync("middle", nothing, ()).unwrap_err();
        assert!(matches!(error, Error::UnknownWorker { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "there is no worker `middle` in this world of `left`, `right`"
        );
        let error = world.rpc_sync(2, nothing, ()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no worker of rank 2 in this world of `left`, `right`"
        );
    });
}

#[test]
fn an_unknown_worker_among_many_is_named_with_a_few() {
    Cluster::threads(12).run(|world| {
        let error = world.rpc_sync("w12", nothing, ()).unwrap_err().to_string();
        let known = "`w0`, `w1`, `w2`, `w3`, `w4`, `w5`, `w6`, `w7` and 4 more";
        assert_eq!(
            error,
            format!("there is no worker `w12` in this world of {known}")
        );
    });
}

on_cluster! { three_threads: Cluster::threads(3), three_processes: Cluster::processes(3) =>
    a_duplicate_name_is_reported_with_both_ranks
}

fn a_duplicate_name_is_reported_with_both_ranks(cluster: Cluster) {
    let hasty = |options: &mut Options| options.rendezvous_timeout = Some(Duration::from_secs(2));
    cluster.options(hasty).run_by_hand(|member| {
        let name = if member.rank() == 1 { "other" } else { "twice" };
        let text = init_with(name, member.options()).unwrap_err().to_string();
        member.board().post("error", &text);
        member.wait_for_all();
        let errors = member.board().notes("error");
        // A member that notices leaves the store; members that have not met all others by then never do.
        let named = errors
            .iter()
            .filter(|error| *error == "two workers are named `twice`: rank 0 and rank 2");
        let incomplete = errors.iter().filter(|error| error.contains("was not complete"));
        let (named, incomplete) = (named.count(), incomplete.count());
        assert!(named >= 1 && named + incomplete == 3, "{errors:?}");
    });
}

#[test]
fn a_taken_rank_is_reported_with_its_worker() {
    let twice = |options: &mut Options| {
        options.rank = options.rank.map(|rank| rank / 2);
        options.world_size = Some(2);
    };
    Cluster::processes(3).options(twice).run_by_hand(|member| {
        let joined = member.init();
        match &joined {
            Ok(world) => member.board().post("joined", world.name()),
            Err(error) => member.board().post("error", &error.to_string()),
        }
        member.wait_for_all();
        assert_eq!(member.board().count("joined"), 2);
        let text = member.board().read("error");
        let either = [
            "worker `w0` cannot join as rank 0, which worker `w1` has already",
            "worker `w1` cannot join as rank 0, which worker `w0` has already",
        ];
        assert!(either.iter().any(|names| text.contains(names)), "{text}");
    });
}

#[test]
fn an_invalid_name_is_explained() {
    for name in ["", " ", "a b", "a/b", "ü", "a\n", &"x".repeat(128)] {
        let text = init_error(name, member("mem://bad-input-names", 0, 1));
        assert!(
            text.starts_with(&format!("`{name}` cannot be the name of a worker: it ")),
            "{text}"
        );
    }
    let text = init_error(&"x".repeat(128), member("mem://bad-input-names", 0, 1));
    assert!(text.contains("128"), "{text}");
    let longest = "x".repeat(127);
    for name in ["a", "A_b-c:9", longest.as_str()] {
        let world = init_with(name, member("mem://bad-input-names", 0, 1)).unwrap();
        assert_eq!(world.name(), name);
        world.shutdown().unwrap();
    }
}

#[test]
fn an_unset_variable_is_named_with_its_alternatives() {
    Cluster::processes(1).run_by_hand(|_| {
        let text = init("a").unwrap_err().to_string();
        assert_eq!(
            text,
            "RANK is not set, and no rank was given in the options or the URL"
        );
        let with_rank = Options::default().rank(0);
        let text = init_error("a", with_rank);
        assert_eq!(
            text,
            "WORLD_SIZE is not set, and no world size was given in the options or the URL"
        );
        let text = init_error("a", member("env://", 0, 1));
        let otherwise = "env:// needs it to find rank 0; set it, or use tcp://host:port";
        assert_eq!(text, format!("MASTER_ADDR is not set, and {otherwise}"));
    });
    Cluster::processes(1)
        .env("MASTER_ADDR", "127.0.0.1")
        .env("RANK", "one")
        .run_by_hand(|_| {
            let text = init("a").unwrap_err().to_string();
            assert_eq!(
                text,
                "RANK is `one`, which is not a whole number from 0 to 4294967295"
            );
            let text = init_error("a", member("env://", 0, 1));
            assert!(text.starts_with("MASTER_PORT is not set, and "), "{text}");
        });
}

#[test]
fn a_rank_outside_the_world_and_an_empty_world_are_reported() {
    let text = init_error("a", member("mem://bad-input-rank", 2, 2));
    assert_eq!(text, "rank 2 is not in a world of size 2: its ranks are 0 to 1");
    let text = init_error("a", member("mem://bad-input-rank", 0, 0));
    assert_eq!(text, "the world size is 0: a world has at least one worker");
}

#[test]
fn lanes_and_chunks_out_of_range_are_reported_with_the_allowed_range() {
    let with = |lanes, chunk| member("mem://bad-lanes", 0, 1).lanes(lanes).chunk(chunk);
    for lanes in [0, 17] {
        let expected = format!("`lanes` is {lanes}; it must be 1 to 16");
        assert!(init_error("w", with(lanes, 1 << 20)).contains(&expected));
    }
    let expected = "`chunk` is 65535; it must be at least 65536 bytes";
    assert!(init_error("w", with(1, 65_535)).contains(expected));
    drop(init_with("w", with(16, 65_536)).unwrap());
}

#[test]
fn an_invalid_init_method_is_explained() {
    let text = init_error("a", member("ftp://somewhere", 0, 1));
    let why = "it must start with env://, tcp://, file:// or mem://";
    assert_eq!(text, format!("invalid init method `ftp://somewhere`: {why}"));
    let text = init_error("a", member("tcp://127.0.0.1:0", 1, 2));
    let why = "port 0 lets rank 0 choose a free port, which rank 1 cannot know; give both the same port";
    assert_eq!(text, format!("invalid init method `tcp://127.0.0.1:0`: {why}"));
}

#[test]
fn a_port_in_use_is_named() {
    let other = StoreServer::bind("127.0.0.1:0").unwrap();
    let (address, port) = (other.address(), other.address().port());
    let error = init_with("a", member(&format!("tcp://{address}"), 0, 1)).unwrap_err();
    let Error::Rendezvous(cause) = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(**cause, RendezvousError::PortInUse { .. }), "{error:?}");
    let why = format!("port {port} is in use, perhaps by another world; choose another port");
    assert_eq!(
        error.to_string(),
        format!("rank 0 cannot host the store at {address}: {why}")
    );
}

#[test]
fn an_incomplete_world_is_reported_with_the_missing_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file://{}", directory.path().join("store").display());
    for init_method in ["mem://bad-input-missing", &file, "tcp://127.0.0.1:0"] {
        let hasty = member(init_method, 0, 4).rendezvous_timeout(Duration::from_millis(150));
        let text = init_error("a", hasty);
        let missing = "still missing rank 1, 2, 3";
        assert_eq!(
            text,
            format!("the world of 4 workers was not complete after 150ms: {missing}"),
            "{init_method}"
        );
    }
    // All members that are there report the missing one.
    Cluster::threads(2)
        .options(|options| {
            options.world_size = Some(3);
            options.rendezvous_timeout = Some(Duration::from_millis(300));
        })
        .run_by_hand(|member| {
            let text = init_with(member.name(), member.options())
                .unwrap_err()
                .to_string();
            // The member that gives up first is missing for the other.
            let ends = [": still missing rank 2", "rank 0, 2", "rank 1, 2"];
            assert!(ends.iter().any(|end| text.ends_with(end)), "{text}");
        });
}

#[test]
fn a_world_without_rank_0_is_reported_with_its_address() {
    let unused = StoreServer::bind("127.0.0.1:0").unwrap().address();
    let hasty = member(&format!("tcp://{unused}"), 1, 2).rendezvous_timeout(Duration::from_millis(200));
    let text = init_error("a", hasty);
    assert!(
        text.starts_with(&format!("no store at {unused} after 0.")),
        "{text}"
    );
    assert!(
        text.ends_with("has rank 0 started, and is it reachable from here?"),
        "{text}"
    );
}

#[test]
fn transports_without_a_common_address_are_reported() {
    Cluster::threads(2)
        .no_shutdown()
        .options(by_rank(Transport::Mem, Transport::Unix))
        .run(|world| {
            let error = world.rpc_sync(1 - world.rank(), nothing, ()).unwrap_err();
            let other = if world.rank() == 0 { "Mem" } else { "Unix" };
            let why = format!("none of its addresses can be used with {other} links");
            assert_eq!(
                error.to_string(),
                format!("cannot connect to worker `w{}`: {why}", 1 - world.rank())
            );
        });
}

/// Returns a change of options that gives rank 0 and rank 1 these transports.
fn by_rank(zero: Transport, one: Transport) -> impl Fn(&mut Options) {
    move |options| options.transport = if options.rank == Some(0) { zero } else { one }
}

#[test]
fn a_fallback_from_shared_memory_is_logged() {
    Log::start();
    Cluster::threads(2)
        .names(&["shares", "does-not"])
        .options(by_rank(Transport::Shared, Transport::Unix))
        .run(|world| {
            world.rpc_sync(1 - world.rank(), nothing, ()).unwrap();
        });
    Log::wait_for(&[
        "the peer declined shared memory",
        "does-not",
        "its transport is Unix sockets alone",
    ]);
}
