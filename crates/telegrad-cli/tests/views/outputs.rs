//! What `telegrad trace` writes: whole, or not at all, and not over what nobody has named.

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

/// What is in a folder, hidden or not.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What a command says that cannot do what it is asked to.
#[track_caller]
fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn a_recording_that_is_merged_onto_itself_is_there_whatever_happens() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let before = recording(folder, "in.jsonl");
    // As if the disk was full: files of more than one block are refused.
    let script =
        format!("trap '' XFSZ; ulimit -f 1; exec {PROGRAM} trace merge in.jsonl in.jsonl -o in.jsonl");
    let said = refused(Command::new("sh").args(["-c", &script]).current_dir(folder));
    assert!(said.contains("cannot write in.jsonl: File too large"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("in.jsonl")).unwrap(), before);
    assert_eq!(files(folder), ["in.jsonl"], "nothing is left behind");

    // With room for it, it is written, and whoever may read it still may.
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
    assert!(folder.join("link.jsonl").is_symlink(), "it leads there still");
    assert_eq!(files(folder), ["in.jsonl", "link.jsonl"]);
}

#[test]
fn what_nobody_has_named_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder, "in.jsonl");
    fs::write(folder.join("trace.json"), "mine").unwrap();
    for command in [
        &["trace", "merge", "in.jsonl"][..],
        &["trace", "record", "--", "touch", "ran"],
    ] {
        let said = refused(&mut telegrad(folder, command));
        let expected = "trace.json is there already; `--output trace.json` replaces it";
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(fs::read_to_string(folder.join("trace.json")).unwrap(), "mine");
    assert!(!folder.join("ran").exists(), "that is known before it runs");

    printed(&mut telegrad(
        folder,
        &["trace", "merge", "in.jsonl", "-o", "trace.json"],
    ));
    let replaced = fs::read_to_string(folder.join("trace.json")).unwrap();
    assert!(replaced.contains("traceEvents"), "{replaced}");
}

#[test]
fn a_page_does_not_take_the_place_of_what_it_shows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let before = recording(folder, "t.jsonl");
    symlink("t.jsonl", folder.join("link.jsonl")).unwrap();
    for (input, output) in [
        ("t.jsonl", "t.jsonl"),
        ("t.jsonl", "./link.jsonl"),
        (".", "t.jsonl"),
    ] {
        let said = refused(&mut telegrad(folder, &["trace", "view", input, "-o", output]));
        assert!(
            said.contains("is what is to be shown, and is not replaced by the page"),
            "{said}"
        );
    }
    assert_eq!(fs::read_to_string(folder.join("t.jsonl")).unwrap(), before);
}

#[test]
fn pipes_are_written_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), "t.jsonl");
    for (command, shown) in [("merge", "traceEvents"), ("view", "<!doctype html>")] {
        let args = ["trace", command, "t.jsonl", "-o", "/dev/stdout"];
        let out = printed(&mut telegrad(folder.path(), &args));
        assert!(out.contains(shown), "{out}");
    }
    // A file that is open for somebody else is still that file.
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
