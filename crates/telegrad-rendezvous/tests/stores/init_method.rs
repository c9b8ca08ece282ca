//! Init methods, variables and their errors.

use telegrad_rendezvous::{MeetingPoint, Membership, resolve};

/// Resolves an init method in an environment of these variables.
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

fn meeting_point(url: &str) -> MeetingPoint {
    resolve_in(&[], url, Some(0), Some(1)).unwrap().meeting_point
}

const ENV: [(&str, &str); 4] = [
    ("RANK", "1"),
    ("WORLD_SIZE", "3"),
    ("MASTER_ADDR", "host"),
    ("MASTER_PORT", "29500"),
];

#[test]
fn every_scheme_names_a_meeting_point() {
    let tcp = |host: &str, port| MeetingPoint::Tcp {
        host: host.into(),
        port,
    };
    assert_eq!(meeting_point("tcp://host:29500"), tcp("host", 29500));
    assert_eq!(meeting_point("tcp://10.0.0.1:1/"), tcp("10.0.0.1", 1));
    assert_eq!(meeting_point("tcp://[::1]:0"), tcp("::1", 0));
    assert_eq!(
        meeting_point("file:///shared/a b"),
        MeetingPoint::File("/shared/a b".into())
    );
    assert_eq!(
        meeting_point("mem://notebook"),
        MeetingPoint::Mem("notebook".into())
    );
    assert_eq!(meeting_point("tcp://[::1]:0").to_string(), "tcp://[::1]:0");
}

#[test]
fn env_takes_everything_from_the_environment() {
    let membership = resolve_in(&ENV, "env://", None, None).unwrap();
    let meeting_point = MeetingPoint::Tcp {
        host: "host".into(),
        port: 29500,
    };
    assert_eq!(
        membership,
        Membership {
            meeting_point,
            rank: 1,
            world_size: 3
        }
    );
}

#[test]
fn arguments_precede_the_query_and_the_query_precedes_the_environment() {
    let of = |url: &str, rank, world_size| {
        let membership = resolve_in(&ENV, url, rank, world_size).unwrap();
        (membership.rank, membership.world_size)
    };
    assert_eq!(of("mem://x", None, None), (1, 3));
    assert_eq!(of("mem://x?rank=4&world_size=5", None, None), (4, 5));
    assert_eq!(of("mem://x?world_size=6&rank=4", Some(2), None), (2, 6));
    assert_eq!(of("env://?rank=4", None, Some(9)), (4, 9));
}

#[test]
fn an_invalid_url_is_explained() {
    const SCHEME: &str = "it must start with env://, tcp://, file:// or mem://";
    const NO_HOST: &str = "the host is missing; write tcp://host:port";
    const NO_PORT: &str = "the port is missing; write tcp://host:port";
    const BRACKETS: &str = "an IPv6 address must be in brackets: tcp://[::1]:port";
    const NO_PATH: &str = "the absolute path of a file is missing; write file:///path";
    let cases = [
        ("", SCHEME),
        ("host:29500", SCHEME),
        ("etcd://host:1", SCHEME),
        (
            "env://host:1",
            "env:// takes the address from MASTER_ADDR and MASTER_PORT, so `host:1` must not follow it",
        ),
        ("tcp://", NO_HOST),
        ("tcp://:29500", NO_HOST),
        ("tcp://host", NO_PORT),
        ("tcp://host:?rank=0", NO_PORT),
        ("tcp://[::1]", NO_PORT),
        ("tcp://::1:80", BRACKETS),
        ("tcp://fe80::1:80", BRACKETS),
        ("tcp://[::1:80", BRACKETS),
        (
            "tcp://host:port",
            "the port is `port`, which is not a whole number from 0 to 65535",
        ),
        (
            "tcp://host:65536",
            "the port is `65536`, which is not a whole number from 0 to 65535",
        ),
        ("file://", NO_PATH),
        ("file://store", NO_PATH),
        ("file:///", NO_PATH),
        ("mem://", "the name is missing; write mem://name"),
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
            "unknown key `size` after the `?`: only rank and world_size are allowed",
        ),
        ("mem://x?rank=0&rank=0", "the key `rank` appears twice"),
    ];
    for (url, problem) in cases {
        let expected = format!("invalid init method `{url}`: {problem}");
        assert_eq!(resolve_in(&[], url, Some(0), Some(1)), Err(expected));
    }
}

#[test]
fn an_unset_variable_is_named_with_its_alternatives() {
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
        let rest = "is not set, and env:// needs it to find rank 0; set it, or use tcp://host:port";
        assert_eq!(error(name), format!("{name} {rest}"));
    }
}

#[test]
fn an_invalid_variable_is_named_with_its_value() {
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
fn the_rank_must_be_below_the_world_size() {
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
        "invalid init method `tcp://host:0`: port 0 lets rank 0 choose a free port, which rank 1 cannot know; \
         give both the same port"
    );
}
