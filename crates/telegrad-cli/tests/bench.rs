//! `telegrad bench` finds the program with the benchmarks and passes its options on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const TELEGRAD: &str = env!("CARGO_BIN_EXE_telegrad");

/// Writes a script that prints its name and arguments, one per line.
fn script(path: &Path) {
    fs::write(path, "#!/bin/sh\nprintf '%s\\n' \"${0##*/}\" \"$@\"\n").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// Copies the command out of the source tree.
fn installed(folder: &TempDir) -> PathBuf {
    let program = folder.path().join("telegrad");
    fs::copy(TELEGRAD, &program).unwrap();
    program
}

/// Runs `telegrad bench` with two options. `cargo` stands in for the real one.
fn bench(program: &Path, cargo: &Path) -> Output {
    Command::new(program)
        .args(["bench", "--quick", "--help"])
        .env("CARGO", cargo)
        .env_remove("CARGO_MANIFEST_DIR")
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<&str> {
    str::from_utf8(&output.stdout).unwrap().lines().collect()
}

#[test]
fn in_a_source_tree_cargo_builds_and_runs_the_benchmarks() {
    let folder = TempDir::new().unwrap();
    let (tree, cargo) = (folder.path().join("tree"), folder.path().join("cargo"));
    let program = tree.join("target/release/telegrad");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::copy(TELEGRAD, &program).unwrap();
    fs::create_dir_all(tree.join("crates/telegrad-bench")).unwrap();
    fs::write(tree.join("crates/telegrad-bench/Cargo.toml"), "").unwrap();
    script(&cargo);
    let output = bench(&program, &cargo);
    assert!(output.status.success(), "{output:?}");
    let manifest = tree.join("Cargo.toml");
    let lines = lines(&output);
    assert_eq!(lines[..3], ["cargo", "run", "--quiet"]);
    assert_eq!(
        lines[3..],
        [
            "--release",
            "--bin",
            "telegrad-bench",
            "--manifest-path",
            manifest.to_str().unwrap(),
            "--",
            "--quick",
            "--help"
        ]
    );
}

#[test]
fn a_missing_cargo_is_an_error_that_tells_where_to_get_it() {
    let output = bench(Path::new(TELEGRAD), Path::new("/nowhere/cargo"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("cannot start `/nowhere/cargo`") && errors.contains("rustup.rs"),
        "{errors}"
    );
}

#[test]
fn elsewhere_the_program_beside_the_command_runs() {
    let folder = TempDir::new().unwrap();
    let program = installed(&folder);
    script(&folder.path().join("telegrad-bench"));
    let output = bench(&program, Path::new("/nowhere/cargo"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&output), ["telegrad-bench", "--quick", "--help"]);
}

#[test]
fn without_the_benchmarks_the_error_tells_how_to_get_them() {
    let folder = TempDir::new().unwrap();
    let output = bench(&installed(&folder), Path::new("/nowhere/cargo"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("cargo run --release -p telegrad-bench"),
        "{errors}"
    );
}
