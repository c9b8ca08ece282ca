//! Output files of `telegrad trace`: complete or unchanged, and replaced only if named.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A recording of one worker, of a kilobyte and more.
fn recording(folder: &Path, file: &str) -> String {
    let worker = r#"{ "rank": 0, "name": "a", "ahead": 0, "threads": [[0, "main"]], "dropped": 0 }"#;
    let event = |span: usize| {
        format!(
            r#"{{ "span": {span}, "parent": 0, "name": "work", "kind": "scope", "worker": 0, "thread": 0, "start": {span}, "end": 100, "status": "ok", "shapes": [], "link": 0 }}"#
        )
    };
    let lines: Vec<String> = [worker.to_owned()]
        .into_iter()
        .chain((1..=20).map(event))
        .collect();
    let content = lines.join("\n");
    fs::write(folder.join(file), &content).unwrap();
    content
}

/// The files in a folder, hidden ones included.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Runs a command that must fail; returns its standard error.
#[track_caller]
fn failed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn a_merge_onto_its_input_replaces_it_only_when_complete() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let before = recording(folder, "in.jsonl");
    // Simulates a full disk: files of more than one block are refused.
    let script =
        format!("trap '' XFSZ; ulimit -f 1; exec {PROGRAM} trace merge in.jsonl in.jsonl -o in.jsonl");
    let messages = failed(Command::new("sh").args(["-c", &script]).current_dir(folder));
    assert!(
        messages.contains("cannot write in.jsonl: File too large"),
        "{messages}"
    );
    assert_eq!(fs::read_to_string(folder.join("in.jsonl")).unwrap(), before);
    assert_eq!(files(folder), ["in.jsonl"], "nothing is left behind");

    // Without the limit, the file is written and keeps its permissions.
    let private = fs::Permissions::from_mode(0o640);
    fs::set_permissions(folder.join("in.jsonl"), private).unwrap();
    symlink("in.jsonl", folder.join("link.jsonl")).unwrap();
    let merge = ["trace", "merge", "in.jsonl", "-o", "link.jsonl"];
    printed(&mut telegrad(folder, &merge));
    let after = fs::read_to_string(folder.join("in.jsonl")).unwrap();
    assert!(after != before && after.contains("\"profile\""), "{after}");
    let mode = fs::metadata(folder.join("in.jsonl"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(folder.join("link.jsonl").is_symlink(), "the link is still a link");
    assert_eq!(files(folder), ["in.jsonl", "link.jsonl"]);
}

#[test]
fn an_existing_default_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder, "in.jsonl");
    fs::write(folder.join("trace.json"), "mine").unwrap();
    for command in [
        &["trace", "merge", "in.jsonl"][..],
        &["trace", "record", "--", "touch", "ran"],
    ] {
        let messages = failed(&mut telegrad(folder, command));
        let expected = "trace.json exists already; use `--output trace.json` to replace it";
        assert!(messages.contains(expected), "{messages}");
    }
    assert_eq!(fs::read_to_string(folder.join("trace.json")).unwrap(), "mine");
    assert!(!folder.join("ran").exists(), "the program must not run");

    printed(&mut telegrad(
        folder,
        &["trace", "merge", "in.jsonl", "-o", "trace.json"],
    ));
    let replaced = fs::read_to_string(folder.join("trace.json")).unwrap();
    assert!(replaced.contains("traceEvents"), "{replaced}");
}

#[test]
fn a_page_does_not_replace_its_recording() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let before = recording(folder, "t.jsonl");
    symlink("t.jsonl", folder.join("link.jsonl")).unwrap();
    for (input, output) in [
        ("t.jsonl", "t.jsonl"),
        ("t.jsonl", "./link.jsonl"),
        (".", "t.jsonl"),
    ] {
        let messages = failed(&mut telegrad(folder, &["trace", "view", input, "-o", output]));
        assert!(messages.contains("it is one of the recordings"), "{messages}");
    }
    assert_eq!(fs::read_to_string(folder.join("t.jsonl")).unwrap(), before);
}

#[test]
fn pipes_and_open_files_are_written_directly() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), "t.jsonl");
    for (command, shown) in [("merge", "traceEvents"), ("view", "<!doctype html>")] {
        let args = ["trace", command, "t.jsonl", "-o", "/dev/stdout"];
        let out = printed(&mut telegrad(folder.path(), &args));
        assert!(out.contains(shown), "{out}");
    }
    // A file that the shell has open is written through that handle.
    let script = format!(
        "{PROGRAM} trace merge t.jsonl -o /dev/stdout > out; {PROGRAM} trace summary out | grep work"
    );
    let out = printed(
        Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path()),
    );
    assert!(out.contains("work"), "{out}");
}
