//! Crates depend on each other in one direction, the one that ARCHITECTURE.md draws.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Every crate of the workspace, lowest first, and the crates of the workspace that it may use. What
/// only its tests use is not looked at: a crate's tests may use the testkit above it.
const ALLOWED: &[(&str, &[&str])] = &[
    ("telegrad-macros", &[]),
    ("telegrad-wire", &["telegrad-macros"]),
    ("telegrad-net", &["telegrad-wire"]),
    (
        "telegrad-rpc",
        &["telegrad-macros", "telegrad-wire", "telegrad-net"],
    ),
    (
        "telegrad-testkit",
        &["telegrad-macros", "telegrad-wire", "telegrad-net", "telegrad-rpc"],
    ),
    (
        "telegrad",
        &["telegrad-macros", "telegrad-wire", "telegrad-net", "telegrad-rpc"],
    ),
    (
        "telegrad-cli",
        &[
            "telegrad-macros",
            "telegrad-wire",
            "telegrad-net",
            "telegrad-rpc",
            "telegrad",
        ],
    ),
];

/// Crate to the crates of the workspace that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    let problems = problems(&workspace());
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_table_itself_points_downwards() {
    for (position, (name, uses)) in ALLOWED.iter().enumerate() {
        for used in *uses {
            let lower = ALLOWED[..position].iter().any(|(lower, _)| lower == used);
            assert!(
                lower,
                "`{name}` may use `{used}`, which does not stand above it in the table"
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
            "`telegrad-new` is not in the table of this test: say what it may use",
            "`telegrad-wire` uses `telegrad-net`, which it may not",
        ]
    );
}

fn problems(graph: &Graph) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, uses) in graph {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            problems.push(format!(
                "`{name}` is not in the table of this test: say what it may use"
            ));
            continue;
        };
        for used in uses.iter().filter(|used| !allowed.contains(&used.as_str())) {
            problems.push(format!("`{name}` uses `{used}`, which it may not"));
        }
    }
    problems
}

fn workspace() -> Graph {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let metadata = MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .exec()
        .unwrap();
    let members: BTreeSet<String> = metadata
        .packages
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let uses = |package: &cargo_metadata::Package| {
        let kept = package
            .dependencies
            .iter()
            .filter(|dep| dep.kind != DependencyKind::Development);
        kept.map(|dep| dep.name.clone())
            .filter(|name| members.contains(name))
            .collect()
    };
    metadata
        .packages
        .iter()
        .map(|package| (package.name.to_string(), uses(package)))
        .collect()
}
