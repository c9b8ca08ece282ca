//! Init methods and their errors.

use crate::{MeetingPoint, Membership, resolve};

/// Resolves in an environment of these variables.
fn resolve_in(
    variables: &[(&str, &str)],
    url: &str,
    rank: Option<u32>,
    world_size: Option<u32>,
) -> Result<Membership, String> {
    let env = |name: &str| {
        variables
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value.to_string())
    };
    resolve(url, rank, world_size, &env).map_err(|e| e.to_string())
}

fn place(url: &str) -> MeetingPoint {
    resolve_in(&[], url, Some(0), Some(1)).unwrap().meeting_point
}

const ENV: [(&str, &str); 4] = [
    ("RANK", "1"),
    ("WORLD_SIZE", "3"),
    ("MASTER_ADDR", "host"),
    ("MASTER_PORT", "29500"),
];

#[test]
fn every_scheme_names_a_place() {
    let tcp = |host: &str, port| MeetingPoint::Tcp {
        host: host.into(),
        port,
    };
    assert_eq!(place("tcp://host:29500"), tcp("host", 29500));
    assert_eq!(place("tcp://10.0.0.1:1/"), tcp("10.0.0.1", 1));
    assert_eq!(place("tcp://[::1]:0"), tcp("::1", 0));
    assert_eq!(
        place("file:///shared/a b"),
        MeetingPoint::File("/shared/a b".into())
    );
    assert_eq!(place("mem://notebook"), MeetingPoint::Mem("notebook".into()));
    assert_eq!(place("tcp://[::1]:0").to_string(), "tcp://[::1]:0");
}

#[test]
fn env_takes_everything_from_the_environment() {
    let resolved = resolve_in(&ENV, "env://", None, None).unwrap();
    let meeting_point = MeetingPoint::Tcp {
        host: "host".into(),
        port: 29500,
    };
    assert_eq!(
        resolved,
        Membership {
            meeting_point,
            rank: 1,
            world_size: 3
        }
    );
}

#[test]
fn arguments_come_before_the_query_and_the_query_before_the_environment() {
    let of = |url: &str, rank, world_size| {
        let resolved = resolve_in(&ENV, url, rank, world_size).unwrap();
        (resolved.rank, resolved.world_size)
    };
    assert_eq!(of("mem://x", None, None), (1, 3));
    assert_eq!(of("mem://x?rank=4&world_size=5", None, None), (4, 5));
    assert_eq!(of("mem://x?world_size=6&rank=4", Some(2), None), (2, 6));
    assert_eq!(of("env://?rank=4", None, Some(9)), (4, 9));
}

#[test]
fn a_bad_url_is_explained() {
    let cases = [
        ("", "it starts with none of env://, tcp://, file:// and mem://"),
        (
            "host:29500",
            "it starts with none of env://, tcp://, file:// and mem://",
        ),
        (
            "etcd://host:1",
            "it starts with none of env://, tcp://, file:// and mem://",
        ),
        (
            "env://host:1",
            "env:// takes the address from MASTER_ADDR and MASTER_PORT, so `host:1` must not follow it",
        ),
        ("tcp://", "it names no host: it should be tcp://host:port"),
        ("tcp://:29500", "it names no host: it should be tcp://host:port"),
        ("tcp://host", "it names no port: it should be tcp://host:port"),
        (
            "tcp://host:?rank=0",
            "it names no port: it should be tcp://host:port",
        ),
        ("tcp://[::1]", "it names no port: it should be tcp://host:port"),
        (
            "tcp://::1:80",
            "an IPv6 address must be in brackets: tcp://[::1]:port",
        ),
        (
            "tcp://fe80::1:80",
            "an IPv6 address must be in brackets: tcp://[::1]:port",
        ),
        (
            "tcp://[::1:80",
            "an IPv6 address must be in brackets: tcp://[::1]:port",
        ),
        (
            "tcp://host:port",
            "the port is `port`, which is not a whole number from 0 to 65535",
        ),
        (
            "tcp://host:65536",
            "the port is `65536`, which is not a whole number from 0 to 65535",
        ),
        (
            "file://",
            "it names no file by its absolute path: it should be file:///path",
        ),
        (
            "file://store",
            "it names no file by its absolute path: it should be file:///path",
        ),
        (
            "file:///",
            "it names no file by its absolute path: it should be file:///path",
        ),
        ("mem://", "it names no world: it should be mem://name"),
        (
            "mem://x?rank=-1",
            "rank is `-1`, which is not a whole number from 0 to 4294967295",
        ),
        (
            "mem://x?rank",
            "rank is ``, which is not a whole number from 0 to 4294967295",
        ),
        (
            "mem://x?size=2",
            "it has the unknown key `size` after the `?`: only rank and world_size may follow",
        ),
        ("mem://x?rank=0&rank=0", "it has the key `rank` twice"),
    ];
    for (url, problem) in cases {
        let expected = format!("the init method `{url}` cannot be used: {problem}");
        assert_eq!(resolve_in(&[], url, Some(0), Some(1)), Err(expected));
    }
}

#[test]
fn a_missing_variable_is_named_with_what_would_also_do() {
    let without = |name: &str| -> Vec<_> { ENV.into_iter().filter(|(n, _)| *n != name).collect() };
    let error = |name: &str| resolve_in(&without(name), "env://", None, None).unwrap_err();
    assert_eq!(
        error("RANK"),
        "RANK is not set, and no rank was given in the options or the URL"
    );
    assert_eq!(
        error("WORLD_SIZE"),
        "WORLD_SIZE is not set, and no world size was given in the options or the URL"
    );
    for name in ["MASTER_ADDR", "MASTER_PORT"] {
        let rest = "is not set, and env:// was to find rank 0 through it; tcp://host:port needs no variable";
        assert_eq!(error(name), format!("{name} {rest}"));
    }
}

#[test]
fn a_variable_without_meaning_is_named_with_its_value() {
    let with = |name, value| -> Vec<_> { [(name, value)].into_iter().chain(ENV).collect() };
    let error = |name, value| resolve_in(&with(name, value), "env://", None, None).unwrap_err();
    assert_eq!(
        error("RANK", "one"),
        "RANK is `one`, which is not a whole number from 0 to 4294967295"
    );
    assert_eq!(
        error("MASTER_PORT", ""),
        "MASTER_PORT is ``, which is not a whole number from 0 to 65535"
    );
    assert_eq!(error("MASTER_ADDR", ""), "MASTER_ADDR is ``, which is not a host");
}

#[test]
fn rank_and_size_must_fit_each_other() {
    let error = |rank, size| resolve_in(&[], "mem://x", Some(rank), Some(size)).unwrap_err();
    assert_eq!(
        error(4, 4),
        "rank 4 is not in a world of size 4: its ranks are 0 to 3"
    );
    assert_eq!(
        error(0, 0),
        "the world size is 0: a world has at least one worker"
    );
}

#[test]
fn only_rank_0_can_use_port_0() {
    assert_eq!(
        resolve_in(&[], "tcp://host:0", Some(1), Some(2)).unwrap_err(),
        "the init method `tcp://host:0` cannot be used: \
         with port 0 the system chooses a port on rank 0, and rank 1 cannot know which"
    );
}
