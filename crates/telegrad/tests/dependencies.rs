//! Crates depend on each other in one direction, as in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Every crate of the workspace, lowest first, and the crates of the workspace that it may use. Dev-dependencies are exempt:
/// a crate's tests may use the testkit above it.
const ALLOWED: &[(&str, &[&str])] = &[
    ("telegrad-macros", &[]),
    ("telegrad-wire", &["telegrad-macros"]),
    ("telegrad-rendezvous", &["telegrad-wire"]),
    (
        "telegrad-error",
        &["telegrad-macros", "telegrad-wire", "telegrad-rendezvous"],
    ),
    ("telegrad-net", &["telegrad-wire"]),
    ("telegrad-trace", &["telegrad-macros", "telegrad-wire"]),
    (
        "telegrad-profile",
        &["telegrad-macros", "telegrad-wire", "telegrad-trace"],
    ),
    (
        "telegrad-otel",
        &["telegrad-macros", "telegrad-wire", "telegrad-trace"],
    ),
    (
        "telegrad-rpc",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-rendezvous",
            "telegrad-error",
            "telegrad-net",
            "telegrad-trace",
            "telegrad-profile",
        ],
    ),
    (
        "telegrad-autograd",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-error",
            "telegrad-net",
            "telegrad-trace",
            "telegrad-profile",
            "telegrad-rpc",
        ],
    ),
    (
        "telegrad-nn",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-error",
            "telegrad-net",
            "telegrad-trace",
            "telegrad-profile",
            "telegrad-rpc",
            "telegrad-autograd",
        ],
    ),
    (
        "telegrad-optim",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-error",
            "telegrad-net",
            "telegrad-trace",
            "telegrad-profile",
            "telegrad-rpc",
            "telegrad-autograd",
        ],
    ),
    (
        "telegrad-testkit",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-error",
            "telegrad-net",
            "telegrad-trace",
            "telegrad-profile",
            "telegrad-rpc",
        ],
    ),
    (
        "telegrad",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-error",
            "telegrad-net",
            "telegrad-trace",
            "telegrad-profile",
            "telegrad-rpc",
            "telegrad-autograd",
            "telegrad-nn",
            "telegrad-optim",
        ],
    ),
    (
        "telegrad-cli",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-error",
            "telegrad-net",
            "telegrad-trace",
            "telegrad-profile",
            "telegrad-rpc",
            "telegrad-autograd",
            "telegrad-nn",
            "telegrad-optim",
            "telegrad",
        ],
    ),
    (
        "telegrad-bench",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-error",
            "telegrad-net",
            "telegrad-trace",
            "telegrad-profile",
            "telegrad-rpc",
            "telegrad-autograd",
            "telegrad-nn",
            "telegrad-optim",
            "telegrad",
            "telegrad-cli",
        ],
    ),
];

/// Each crate with the crates of the workspace that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    let problems = problems(&workspace());
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_table_has_dependencies_above_dependents() {
    for (position, (name, uses)) in ALLOWED.iter().enumerate() {
        for used in *uses {
            let lower = ALLOWED[..position].iter().any(|(lower, _)| lower == used);
            assert!(
                lower,
                "`{name}` may use `{used}`, which is not above it in the table"
            );
        }
    }
}

#[test]
fn a_wrong_edge_and_an_unknown_crate_are_named() {
    let edge = |from: &str, to: &str| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    let found = problems(&Graph::from([
        edge("telegrad-new", "telegrad-wire"),
        edge("telegrad-rpc", "telegrad-net"),
        edge("telegrad-wire", "telegrad-net"),
    ]));
    assert_eq!(
        found,
        [
            "`telegrad-new` is not in the table of this test: add it with its dependencies",
            "`telegrad-wire` uses `telegrad-net`, which the table does not allow",
        ]
    );
}

fn problems(graph: &Graph) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, uses) in graph {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            problems.push(format!(
                "`{name}` is not in the table of this test: add it with its dependencies"
            ));
            continue;
        };
        for used in uses.iter().filter(|used| !allowed.contains(&used.as_str())) {
            problems.push(format!("`{name}` uses `{used}`, which the table does not allow"));
        }
    }
    problems
}

fn workspace() -> Graph {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--manifest-path",
            manifest,
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |of: &Value| of["name"].as_str().unwrap().to_owned();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    let uses = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let kept = all.filter(|dependency| dependency["kind"] != "dev").map(name);
        kept.filter(|name| members.contains(name)).collect()
    };
    packages
        .iter()
        .map(|package| (name(package), uses(package)))
        .collect()
}
