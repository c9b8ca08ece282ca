//! Formats and reading of recordings (S57, S58).

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use telegrad_profile::read;

use super::*;

#[test]
fn both_formats_are_read_back_unchanged() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let mut profile = profile();
    profile.world = Some(7);
    let (json, lines) = (folder.join("p.json"), folder.join("p.jsonl"));
    profile
        .write_chrome(std::fs::File::create(&json).unwrap())
        .unwrap();
    profile
        .write_lines(std::fs::File::create(&lines).unwrap())
        .unwrap();
    assert_eq!(read(std::slice::from_ref(&json)).unwrap(), profile);
    assert_eq!(read(std::slice::from_ref(&lines)).unwrap(), profile);
    // Duplicate events count once.
    let both = read(&[json, lines]).unwrap();
    assert_eq!(both, profile);
}

#[test]
fn files_rewritten_by_other_programs_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let profile = profile();
    let mut file = Vec::new();
    profile.write_chrome(&mut file).unwrap();
    let value: Value = serde_json::from_slice(&file).unwrap();
    // Different orders of keys, line breaks and escapes.
    let (events, metadata) = (&value["traceEvents"], &value["telegrad"]);
    let first = format!("{{\"traceEvents\":{events},\"other\":[1],\"telegrad\":{metadata}}}");
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    let escaped = first.replace("\"ph\":\"X\"", "\"ph\":\"\\u0058\"");
    assert_ne!(first, escaped);
    for text in [first, pretty, escaped] {
        let path = folder.path().join("again.json");
        std::fs::write(&path, text).unwrap();
        assert_eq!(read(&[path]).unwrap(), profile);
    }
    let mut lines = Vec::new();
    profile.write_lines(&mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let path = folder.path().join("again.jsonl");
    std::fs::write(&path, lines.replace('\n', "\r\n\r\n")).unwrap();
    assert_eq!(read(&[path]).unwrap(), profile);
}

#[test]
fn workers_and_threads_may_be_unsorted_and_duplicate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    let mut text = String::new();
    for (rank, name, thread) in [(1, "b", 101), (0, "a", 7), (0, "a", 100), (0, "a", 5)] {
        let threads = serde_json::json!([[200, "last"], [thread, format!("thread-{thread}")]]);
        let worker =
            serde_json::json!({ "rank": rank, "name": name, "ahead": 0, "threads": threads, "dropped": 0 });
        text += &format!("{worker}\n");
    }
    for event in events() {
        text += &(serde_json::to_string(&event).unwrap() + "\n");
    }
    std::fs::write(&path, text).unwrap();
    let profile = read(&[path]).unwrap();
    assert_eq!(
        (
            profile.worker_name(0),
            profile.worker_name(1),
            profile.workers.len()
        ),
        ("a", "b", 2)
    );
    let view = view(&profile);
    for (rank, name) in [(0, "thread-100"), (1, "thread-101")] {
        assert_eq!(view["workers"][rank]["rows"], serde_json::json!([name]));
    }
}

#[test]
fn recordings_are_read_from_pipes() {
    let profile = profile();
    for is_chrome in [true, false] {
        let (from, mut to) = std::io::pipe().unwrap();
        // The file fits into the buffer of the pipe.
        if is_chrome {
            profile.write_chrome(&mut to).unwrap();
        } else {
            profile.write_lines(&mut to).unwrap();
        }
        drop(to);
        let path = PathBuf::from(format!("/proc/self/fd/{}", from.as_raw_fd()));
        assert_eq!(read(&[path]).unwrap(), profile);
    }
}

#[test]
fn files_that_are_no_recordings_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let file = folder.join("x.json");
    for (content, why) in [
        ("", "it is empty"),
        ("hello", "line 1 is invalid"),
        (
            "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[]}",
            "not written by telegrad",
        ),
        ("{\"displayTimeUnit\":", "EOF"),
        ("[{\"ph\":\"X\"}]", "it is a list"),
        (
            "{\"hello\":1}\n{}\n",
            "line 1 is invalid: it is no line of a recording",
        ),
        (
            "{\"span\":1,\"parent\":0}\n{}\n",
            "line 1 is invalid: in an event, missing field `name`",
        ),
        (
            "{\"rank\":1,\"ahead\":-0.5}\n{}\n",
            "line 1 is invalid: in a worker, invalid type",
        ),
        ("{\"profile\":{}}\n{}\n", "in a profile, missing field"),
    ] {
        std::fs::write(&file, content).unwrap();
        let error = read(std::slice::from_ref(&file)).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("x.json"), "{error}");
    }
    let event = serde_json::to_string(&events()[0]).unwrap();
    std::fs::write(&file, event + "\n").unwrap();
    let error = read(std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(
        error.contains("without the lines that name their workers"),
        "{error}"
    );
    std::fs::write(&file, b"\x1f\x8b\x08\0\n\0").unwrap();
    let error = read(std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(error.contains("it is compressed"), "{error}");
    let error = read(&[folder.join("missing")]).unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
    let error = read(std::slice::from_ref(&folder)).unwrap_err().to_string();
    assert!(error.contains("no files of workers"), "{error}");
}

#[test]
fn the_events_of_a_killed_worker_are_read() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let mut text = String::from("{\"rank\":0,\"of\":\"a\",\"world\":7}\n");
    for event in events().iter().filter(|event| event.worker == 0) {
        text += &(serde_json::to_string(event).unwrap() + "\n");
    }
    let whole = text.len();
    text += "{\"span\":99,\"parent\":0,\"na";
    std::fs::write(folder.join("0-a-1.jsonl"), &text).unwrap();
    let profile = read(std::slice::from_ref(&folder)).unwrap();
    assert_eq!(profile.events.len(), 6);
    let [(worker, why)] = &profile.missing[..] else {
        panic!("{:?}", profile.missing)
    };
    assert!(worker == "a" && why.contains("incomplete"), "{worker}: {why}");
    // An invalid line in the middle is an error.
    text.insert(whole - 1, '?');
    std::fs::write(folder.join("0-a-1.jsonl"), &text).unwrap();
    assert!(read(std::slice::from_ref(&folder)).is_err());
}

/// Writes the file of a worker.
pub(crate) fn write_part(folder: &Path, world: u64, (rank, name): (u32, &str), events: &[Event], last: &str) {
    let mut text = serde_json::json!({ "rank": rank, "of": name, "world": world }).to_string() + "\n";
    for event in events {
        text += &(serde_json::to_string(event).unwrap() + "\n");
    }
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(format!("{rank}-{name}-1f.jsonl")), text + last).unwrap();
}

pub(crate) const END: &str = "{\"threads\":[]}\n";

#[test]
fn incomplete_files_are_reported_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = [0, 1].map(|rank| {
        let mut of_worker = events();
        of_worker.retain(|event| event.worker == rank);
        of_worker
    });
    write_part(folder.path(), 7, (0, "a"), &a, END);
    let paths = [folder.path().to_owned()];
    assert!(read(&paths).unwrap().missing.is_empty());
    write_part(folder.path(), 7, (1, "b"), &b, "{\"stopped\":\"disk full\"}\n");
    // These were killed before and within their first line. `b` calls `d`.
    std::fs::write(folder.path().join("2-c-x-5.jsonl"), "").unwrap();
    std::fs::write(folder.path().join("3-d-5.jsonl"), "{\"rank\":3,").unwrap();
    let mut calling = b;
    calling.push(event(50, 4, 1, call(3, (41, 0)), "lost", (41, 42)));
    write_part(
        folder.path(),
        7,
        (1, "b"),
        &calling,
        "{\"stopped\":\"disk full\"}\n",
    );
    let profile = read(&paths).unwrap();
    assert_eq!(profile.events.len(), 9);
    let missing: Vec<_> = profile.missing.iter().map(|(worker, _)| &**worker).collect();
    assert_eq!(missing, ["b", "c-x", "d"]);
    let whys: Vec<_> = profile.missing.iter().map(|(_, why)| &**why).collect();
    assert_eq!(whys[0], "its recording stopped: disk full");
    assert!(
        whys[1].contains("it is empty") && whys[2].contains("line 1 is invalid"),
        "{whys:?}"
    );
    assert_eq!(
        (profile.worker_name(3), profile.workers.last().unwrap().known),
        ("d", false)
    );
    // A file given by name must be readable.
    let error = read(&[folder.path().join("2-c-x-5.jsonl")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("it is empty"), "{error}");
}

#[test]
fn a_truncated_profile_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.jsonl");
    let profile = profile();
    let mut lines = Vec::new();
    profile.write_lines(&mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let without_last = lines.trim_end().rsplit_once('\n').unwrap().0;
    for text in [format!("{without_last}\n"), lines[..lines.len() - 9].to_owned()] {
        std::fs::write(&file, text).unwrap();
        let read = read(std::slice::from_ref(&file)).unwrap();
        assert_eq!(read.events.len(), 7);
        let (_, why) = read.missing.last().unwrap();
        assert_eq!(why, "the file has 7 of 8 events");
    }
}
