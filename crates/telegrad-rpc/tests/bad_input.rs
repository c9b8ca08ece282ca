//! Bad input from people: names, ranks, addresses, worlds that are not complete. What strangers on the
//! wire can send is in `foreign`.

use std::time::Duration;

use telegrad_rpc::{Error, Options, RendezvousError, StoreServer, init, init_with, remote};
use telegrad_testkit::{Cluster, on_cluster, on_threads_and_processes};

#[remote]
fn nothing() {}

/// Options for one member of a world that only this test knows.
fn member(place: &str, rank: u32, world_size: u32) -> Options {
    Options {
        init_method: place.into(),
        rank: Some(rank),
        world_size: Some(world_size),
        rendezvous_timeout: Duration::from_secs(20),
        ..Options::default()
    }
}

fn failure(name: &str, options: Options) -> String {
    init_with(name, options)
        .map(|world| panic!("{world:?}"))
        .unwrap_err()
        .to_string()
}

on_threads_and_processes! { 2 => an_unknown_worker_is_named_with_those_there_are }

fn an_unknown_worker_is_named_with_those_there_are(cluster: Cluster) {
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
fn of_many_known_workers_a_few_are_shown() {
    Cluster::threads(12).run(|world| {
        let error = world.rpc_sync("w12", nothing, ()).unwrap_err().to_string();
        let known = "`w0`, `w1`, `w2`, `w3`, `w4`, `w5`, `w6`, `w7` and 4 more";
        assert_eq!(
            error,
            format!("there is no worker `w12` in this world of {known}")
        );
    });
}

on_cluster! { three_threads: Cluster::threads(3) => a_duplicate_name_is_an_error_that_names_both_ranks }
on_cluster! { three_processes: Cluster::processes(3) => a_duplicate_name_is_an_error_that_names_both_ranks }

fn a_duplicate_name_is_an_error_that_names_both_ranks(cluster: Cluster) {
    let hasty = |options: &mut Options| options.rendezvous_timeout = Duration::from_secs(2);
    cluster.options(hasty).run_by_hand(|member| {
        let name = if member.rank() == 1 { "other" } else { "twice" };
        let text = init_with(name, member.options()).unwrap_err().to_string();
        member.board().post("error", &text);
        member.wait_for_all();
        let errors = member.board().notes("error");
        // Whoever notices leaves, and those that have not met everybody by then never do.
        let named = errors
            .iter()
            .filter(|error| *error == "two workers are named `twice`: rank 0 and rank 2");
        let alone = errors.iter().filter(|error| error.contains("was not complete"));
        let (named, alone) = (named.count(), alone.count());
        assert!(named >= 1 && named + alone == 3, "{errors:?}");
    });
}

#[test]
fn a_rank_that_is_taken_is_an_error_that_names_who_has_it() {
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
            "`w0` has rank 0, which worker `w1` has already",
            "`w1` has rank 0, which worker `w0` has already",
        ];
        assert!(either.iter().any(|names| text.contains(names)), "{text}");
    });
}

#[test]
fn names_that_are_not_allowed_say_why() {
    for name in ["", " ", "a b", "a/b", "ü", "a\n", &"x".repeat(128)] {
        let text = failure(name, member("mem://bad-input-names", 0, 1));
        assert!(
            text.starts_with(&format!("`{name}` cannot be the name of a worker: it ")),
            "{text}"
        );
    }
    let text = failure(&"x".repeat(128), member("mem://bad-input-names", 0, 1));
    assert!(text.contains("128"), "{text}");
    let longest = "x".repeat(127);
    for name in ["a", "A_b-c:9", longest.as_str()] {
        let world = init_with(name, member("mem://bad-input-names", 0, 1)).unwrap();
        assert_eq!(world.name(), name);
        world.shutdown().unwrap();
    }
}

#[test]
fn a_missing_variable_is_named_with_what_would_do_instead() {
    Cluster::processes(1).run_by_hand(|_| {
        let text = init("a").unwrap_err().to_string();
        assert_eq!(
            text,
            "RANK is not set, and no rank was given in the options or the URL"
        );
        let with_rank = Options {
            rank: Some(0),
            ..Options::default()
        };
        let text = failure("a", with_rank);
        assert_eq!(
            text,
            "WORLD_SIZE is not set, and no world size was given in the options or the URL"
        );
        let text = failure(
            "a",
            Options {
                rank: Some(0),
                world_size: Some(1),
                ..Options::default()
            },
        );
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
            let text = failure(
                "a",
                Options {
                    rank: Some(0),
                    world_size: Some(1),
                    ..Options::default()
                },
            );
            assert!(text.starts_with("MASTER_PORT is not set, and "), "{text}");
        });
}

#[test]
fn a_rank_outside_the_world_and_an_empty_world_say_so() {
    let text = failure("a", member("mem://bad-input-rank", 2, 2));
    assert_eq!(text, "rank 2 is not in a world of size 2: its ranks are 0 to 1");
    let text = failure("a", member("mem://bad-input-rank", 0, 0));
    assert_eq!(text, "the world size is 0: a world has at least one worker");
}

#[test]
fn lanes_and_chunks_out_of_range_say_what_is_allowed() {
    let with = |lanes, chunk| Options {
        lanes,
        chunk,
        ..member("mem://bad-lanes", 0, 1)
    };
    for lanes in [0, 17] {
        let expected = format!("`lanes` is {lanes}; it must be 1 to 16");
        assert!(failure("w", with(lanes, 1 << 20)).contains(&expected));
    }
    let expected = "`chunk` is 65535; it must be at least 65536 bytes";
    assert!(failure("w", with(1, 65_535)).contains(expected));
    drop(init_with("w", with(16, 65_536)).unwrap());
}

#[test]
fn an_init_method_that_cannot_be_used_says_why() {
    let text = failure("a", member("ftp://somewhere", 0, 1));
    let why = "it must start with env://, tcp://, file:// or mem://";
    assert_eq!(text, format!("invalid init method `ftp://somewhere`: {why}"));
    let text = failure("a", member("tcp://127.0.0.1:0", 1, 2));
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
fn a_world_that_is_never_complete_names_who_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file://{}", directory.path().join("store").display());
    for place in ["mem://bad-input-missing", &file, "tcp://127.0.0.1:0"] {
        let hasty = Options {
            rendezvous_timeout: Duration::from_millis(150),
            ..member(place, 0, 4)
        };
        let text = failure("a", hasty);
        let missing = "still missing rank 1, 2, 3";
        assert_eq!(
            text,
            format!("the world of 4 workers was not complete after 150ms: {missing}"),
            "{place}"
        );
    }
    // Those that are there tell the same of the others.
    Cluster::threads(2)
        .options(|options| {
            options.world_size = Some(3);
            options.rendezvous_timeout = Duration::from_millis(300);
        })
        .run_by_hand(|member| {
            let text = init_with(member.name(), member.options())
                .unwrap_err()
                .to_string();
            // The one that gives up first is missing to the other.
            let ends = [": still missing rank 2", "rank 0, 2", "rank 1, 2"];
            assert!(ends.iter().any(|end| text.ends_with(end)), "{text}");
        });
}

#[test]
fn a_world_without_rank_0_says_where_it_was_looked_for() {
    let gone = StoreServer::bind("127.0.0.1:0").unwrap().address();
    let hasty = Options {
        rendezvous_timeout: Duration::from_millis(200),
        ..member(&format!("tcp://{gone}"), 1, 2)
    };
    let text = failure("a", hasty);
    assert!(
        text.starts_with(&format!("no store at {gone} after 0.")),
        "{text}"
    );
    assert!(
        text.ends_with("has rank 0 started, and is it reachable from here?"),
        "{text}"
    );
}

#[test]
fn a_transport_that_does_not_reach_a_worker_says_so() {
    use telegrad_rpc::Transport;
    Cluster::threads(2)
        .no_shutdown()
        .options(|options| {
            options.transport = if options.rank == Some(0) {
                Transport::Mem
            } else {
                Transport::Unix
            };
        })
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

/// Falling back to something slower is said once per link, with the reason.
#[test]
fn a_worker_that_does_not_share_memory_is_in_the_log() {
    use telegrad_rpc::Transport;
    use telegrad_testkit::Log;
    Log::start();
    Cluster::threads(2)
        .names(&["shares", "does-not"])
        .options(|options| {
            options.transport = if options.rank == Some(0) {
                Transport::Shared
            } else {
                Transport::Unix
            };
        })
        .run(|world| {
            world.rpc_sync(1 - world.rank(), nothing, ()).unwrap();
        });
    Log::wait_for(&[
        "no memory is shared",
        "does-not",
        "its transport is Unix sockets alone",
    ]);
}
