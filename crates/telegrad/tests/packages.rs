//! Every published crate has the metadata and files of a package.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Fields of a manifest that a registry shows.
const FIELDS: [&str; 6] = [
    "description",
    "license",
    "readme",
    "repository",
    "rust_version",
    "documentation",
];

const FILES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

#[test]
fn published_crates_have_metadata_and_licences() {
    let problems: Vec<_> = published().iter().flat_map(problems).collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// A versioned dev-dependency on an unpublished crate breaks `cargo package`; a path alone is left out of the package.
#[test]
fn published_crates_use_others_by_path_in_tests_only() {
    let published = published();
    let is_published = |name: &Value| published.iter().any(|package| package["name"] == *name);
    for package in &published {
        let dependencies = package["dependencies"].as_array().unwrap();
        let unpublished = dependencies
            .iter()
            .filter(|dependency| !dependency["path"].is_null() && !is_published(&dependency["name"]));
        for dependency in unpublished {
            let (name, used) = (&package["name"], &dependency["name"]);
            assert_eq!(
                dependency["kind"], "dev",
                "{name} needs {used}, which is not published"
            );
            assert_eq!(
                dependency["req"], "*",
                "{name} names a version of {used}, which is not published"
            );
        }
    }
}

/// What a package lacks.
fn problems(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap();
    let has_library = package["targets"].as_array().unwrap().iter().any(|target| {
        let kinds = target["kind"].as_array().unwrap();
        kinds.iter().any(|kind| kind == "lib" || kind == "proc-macro")
    });
    let missing_fields = FIELDS
        .into_iter()
        .filter(|&field| package[field].is_null() && (has_library || field != "documentation"));
    let folder = Path::new(package["manifest_path"].as_str().unwrap())
        .parent()
        .unwrap();
    let readme = package["readme"].as_str();
    let missing_files = FILES
        .into_iter()
        .chain(readme)
        .filter(|file| !folder.join(file).is_file());
    let mut problems: Vec<_> = missing_fields
        .chain(missing_files)
        .map(|missing| format!("`{name}` has no {missing}"))
        .collect();
    if has_library && package["metadata"]["docs"]["rs"]["targets"].is_null() {
        problems.push(format!("`{name}` has no [package.metadata.docs.rs] with targets"));
    }
    problems
}

/// The published packages of the workspace.
fn published() -> Vec<Value> {
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
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    // `publish = false` appears as an empty list of registries.
    let published = packages.filter(|package| package["publish"].is_null());
    published.cloned().collect()
}
