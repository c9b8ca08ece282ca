//! Profiles in files (S44), and several of them as one (S43).

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use telegrad_profile::{read, read_worlds};

use super::*;

#[test]
fn files_of_both_kinds_are_read_back_as_they_were() {
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
    // What is in both is there once.
    let both = read(&[json, lines]).unwrap();
    assert_eq!(both, profile);
}

#[test]
fn what_other_programs_have_written_again_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let profile = profile();
    let mut file = Vec::new();
    profile.write_chrome(&mut file).unwrap();
    let value: Value = serde_json::from_slice(&file).unwrap();
    // Other orders of keys, on one line and on many, and other ways to write the same text.
    let (events, about) = (&value["traceEvents"], &value["telegrad"]);
    let first = format!("{{\"traceEvents\":{events},\"other\":[1],\"telegrad\":{about}}}");
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
fn workers_and_threads_may_be_in_any_order_and_more_than_once() {
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
        (profile.worker(0), profile.worker(1), profile.workers.len()),
        ("a", "b", 2)
    );
    let view = view(&profile);
    for (rank, name) in [(0, "thread-100"), (1, "thread-101")] {
        assert_eq!(view["workers"][rank]["rows"], serde_json::json!([name]));
    }
}

#[test]
fn recordings_come_through_pipes() {
    let profile = profile();
    for is_chrome in [true, false] {
        let (from, mut to) = std::io::pipe().unwrap();
        // It fits into the pipe.
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
fn what_is_no_recording_is_refused_with_the_reason() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let file = folder.join("x.json");
    for (content, why) in [
        ("", "it is empty"),
        ("hello", "line 1 makes no sense"),
        (
            "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[]}",
            "not written by telegrad",
        ),
        ("{\"displayTimeUnit\":", "EOF"),
        ("[{\"ph\":\"X\"}]", "it is a list"),
        (
            "{\"hello\":1}\n{}\n",
            "line 1 makes no sense: nothing in a recording",
        ),
        (
            "{\"span\":1,\"parent\":0}\n{}\n",
            "line 1 makes no sense: of an event, missing field `name`",
        ),
        (
            "{\"rank\":1,\"ahead\":-0.5}\n{}\n",
            "line 1 makes no sense: of a worker, invalid type",
        ),
        ("{\"profile\":{}}\n{}\n", "of a profile, missing field"),
    ] {
        std::fs::write(&file, content).unwrap();
        let error = read(std::slice::from_ref(&file)).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("x.json"), "{error}");
    }
    let event = serde_json::to_string(&events()[0]).unwrap();
    std::fs::write(&file, event + "\n").unwrap();
    let error = read(std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(error.contains("which workers they are of"), "{error}");
    std::fs::write(&file, b"\x1f\x8b\x08\0\n\0").unwrap();
    let error = read(std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(error.contains("it is compressed"), "{error}");
    let error = read(&[folder.join("nobody")]).unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
    let error = read(std::slice::from_ref(&folder)).unwrap_err().to_string();
    assert!(error.contains("no worker has written"), "{error}");
}

#[test]
fn a_worker_that_was_killed_leaves_what_it_had_written() {
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
    assert!(worker == "a" && why.contains("breaks off"), "{worker}: {why}");
    // In the middle it would be another matter.
    text.insert(whole - 1, '?');
    std::fs::write(folder.join("0-a-1.jsonl"), &text).unwrap();
    assert!(read(std::slice::from_ref(&folder)).is_err());
}

#[test]
fn recordings_of_several_worlds_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let line = serde_json::to_string(&events()[0]).unwrap();
    for world in [7, 8] {
        let text = format!("{{\"rank\":0,\"of\":\"a\",\"world\":{world}}}\n{line}\n");
        std::fs::write(folder.path().join(format!("0-a-{world}.jsonl")), text).unwrap();
    }
    let paths = [folder.path().to_owned()];
    let worlds = read_worlds(&paths).unwrap();
    assert_eq!(
        worlds.iter().map(|world| world.events.len()).collect::<Vec<_>>(),
        [1, 1]
    );
    let error = read(&paths).unwrap_err().to_string();
    assert!(
        error.contains("0-a-7.jsonl and ") && error.contains("are recordings of different worlds"),
        "{error}"
    );
}

/// Writes what a worker has recorded, as it would itself.
fn write_part(folder: &Path, world: u64, (rank, name): (u32, &str), events: &[Event], last: &str) {
    let mut text = serde_json::json!({ "rank": rank, "of": name, "world": world }).to_string() + "\n";
    for event in events {
        text += &(serde_json::to_string(event).unwrap() + "\n");
    }
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(format!("{rank}-{name}-1f.jsonl")), text + last).unwrap();
}

const END: &str = "{\"threads\":[]}\n";

#[test]
fn what_workers_could_not_write_is_said_to_be_missing() {
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
    // These were killed before their first line, and within it. One of them is called by another.
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
    assert_eq!(whys[0], "it could write no more: disk full");
    assert!(
        whys[1].contains("it is empty") && whys[2].contains("line 1 makes no sense"),
        "{whys:?}"
    );
    assert_eq!(
        (profile.worker(3), profile.workers.last().unwrap().known),
        ("d", false)
    );
    // By name, they are asked for.
    let error = read(&[folder.path().join("2-c-x-5.jsonl")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("it is empty"), "{error}");
}

#[test]
fn a_profile_that_was_cut_off_is_known_to_be() {
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
        assert_eq!(why, "of 8 events, 7 are in the file");
    }
}

#[test]
fn recordings_of_different_worlds_are_not_put_together() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, world, is_chrome: bool| {
        let profile = Profile { world, ..profile() };
        let path = folder.path().join(name);
        let file = std::fs::File::create(&path).unwrap();
        if is_chrome {
            profile.write_chrome(file).unwrap();
        } else {
            profile.write_lines(file).unwrap();
        }
        path
    };
    let one = write("one.json", Some(7), true);
    let unknown = write("unknown.json", None, true);
    for is_chrome in [true, false] {
        let other = write("other", Some(8), is_chrome);
        let error = read(&[one.clone(), other.clone()]).unwrap_err().to_string();
        let said = format!(
            "{} and {} are recordings of different worlds",
            one.display(),
            other.display()
        );
        assert!(error.starts_with(&said), "{error}");
        assert_eq!(read_worlds(&[one.clone(), other]).unwrap().len(), 2);
    }
    // One that does not say of which it is may be of the same.
    for files in [[&one, &unknown], [&unknown, &one]] {
        let both = read(&files.map(Clone::clone)).unwrap();
        assert_eq!((both.world, both.events.len()), (Some(7), 8));
    }
    write_part(folder.path(), 9, (5, "e"), &[], END);
    assert!(read(&[one, folder.path().join("5-e-1f.jsonl")]).is_err());
}

/// What `a` and `b` have recorded, on clocks of which the second is ahead by a second.
fn on_two_hosts() -> (Vec<Event>, Vec<Event>) {
    let (a, mut b): (Vec<_>, Vec<_>) = events().into_iter().partition(|event| event.worker == 0);
    for event in &mut b {
        event.start += 1_000_000_000;
        event.end += 1_000_000_000;
        if let Kind::Execution(execution) = &mut event.kind {
            execution.arrived += 1_000_000_000;
            execution.replied += 1_000_000_000;
        }
    }
    (a, b)
}

/// That `b` is on the clock of `a`: its execution is within the call.
#[track_caller]
fn assert_one_clock(profile: &Profile) {
    let find = |span| profile.events.iter().find(|event| event.span == span).unwrap();
    let (call, execution) = (find(2), find(4));
    assert!(
        call.start < execution.start && execution.end < call.end,
        "{call:?} {execution:?}"
    );
    let ahead: Vec<_> = profile.workers.iter().map(|worker| worker.ahead).collect();
    assert!(
        ahead[0] == 0 && (ahead[1] - 1_000_000_000).abs() < 10_000,
        "{ahead:?}"
    );
    let phases = profile.phases(call).unwrap();
    assert_eq!(phases.execute, 35_000);
    assert!(phases.wire < 20_000 && phases.reply < 20_000, "{phases:?}");
}

#[test]
fn the_folders_of_two_hosts_are_brought_to_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = on_two_hosts();
    let folders = ["one", "two"].map(|name| folder.path().join(name));
    write_part(&folders[0], 7, (0, "a"), &a, END);
    write_part(&folders[1], 7, (1, "b"), &b, END);
    let profile = read(&folders).unwrap();
    assert_one_clock(&profile);
    assert_eq!((profile.world, profile.events.len()), (Some(7), 8));
}

#[test]
fn profiles_of_two_hosts_are_brought_to_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = on_two_hosts();
    let written = |rank, name: &str, events| {
        let collected = Collected {
            events,
            ..Collected::default()
        };
        let mut profile = Profile::new(rank, vec![(rank, name.to_owned(), collected)], Vec::new());
        profile.know([(0, "a".to_owned()), (1, "b".to_owned())]);
        let path = folder.path().join(format!("{name}.json"));
        profile
            .write_chrome(std::fs::File::create(&path).unwrap())
            .unwrap();
        path
    };
    let files = [written(0, "a", a), written(1, "b", b)];
    let profile = read(&files).unwrap();
    assert_one_clock(&profile);
    assert!(profile.workers.iter().all(|worker| worker.known));
    // Once more with what came of it, and what was in that already.
    let merged = folder.path().join("merged.jsonl");
    profile
        .write_lines(std::fs::File::create(&merged).unwrap())
        .unwrap();
    let [a, b] = files;
    assert_eq!(read(&[merged, b, a]).unwrap(), profile);
}

#[test]
fn recordings_of_clocks_that_drift_can_be_put_together_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    // A call every ten seconds, to a worker whose clock gains 20 µs a second and is a day ahead.
    let there = |time: u64| time + time / 50_000 + 86_400_000_000;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for n in 0..100 {
        let at = 1_000_000 + n * 10_000_000;
        let span = 10 + n;
        a.push(event(span, 0, 0, call(1, (at, at + 400)), "f", (at, at + 400)));
        let (start, end) = (there(at + 100), there(at + 300));
        b.push(event(
            1000 + n,
            span,
            1,
            execution(0, (start, end)),
            "f",
            (start, end),
        ));
    }
    let folders = ["one", "two"].map(|name| folder.path().join(name));
    write_part(&folders[0], 7, (0, "a"), &a, END);
    write_part(&folders[1], 7, (1, "b"), &b, END);
    let mut last = read(&folders).unwrap();
    assert!(last.workers[1].drift.is_some());
    for is_chrome in [true, false] {
        for call in last.events.iter().filter(|event| event.as_call().is_some()) {
            let phases = last.phases(call).unwrap();
            assert!(
                phases.wire.abs_diff(100_000) < 50_000 && phases.reply.abs_diff(100_000) < 50_000,
                "{phases:?}"
            );
        }
        assert!(last.doubts().is_empty());
        let merged = folder.path().join("merged");
        let file = std::fs::File::create(&merged).unwrap();
        if is_chrome {
            last.write_chrome(file).unwrap();
        } else {
            last.write_lines(file).unwrap();
        }
        assert_eq!(read(std::slice::from_ref(&merged)).unwrap(), last);
        let [one, two] = folders.clone();
        let again = read(&[merged, two, one]).unwrap();
        for (event, before) in again.events.iter().zip(&last.events) {
            assert!(event.span == before.span && event.start.abs_diff(before.start) <= 2);
        }
        last = again;
    }
}

#[test]
fn events_that_there_was_no_room_for_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, profile: &Profile| {
        let path = folder.path().join(name);
        let file = std::fs::File::create(&path).unwrap();
        profile.write_lines(file).unwrap();
        path
    };
    let of = |span, dropped| {
        let collected = Collected {
            events: vec![event(span, 0, 0, Kind::Scope, "x", (0, 10))],
            threads: vec![(span, "x".into())],
            dropped,
            ..Collected::default()
        };
        Profile::new(0, vec![(0, "a".into(), collected)], Vec::new())
    };
    let (one, two) = (written("1", &of(1, 5)), written("2", &of(2, 7)));
    let both = written("12", &read(&[one.clone(), two.clone()]).unwrap());
    for files in [
        vec![&one, &two, &one],
        vec![&both, &one],
        vec![&one, &both, &two],
        vec![&two, &one, &both, &both],
    ] {
        let files: Vec<PathBuf> = files.into_iter().cloned().collect();
        assert_eq!(read(&files).unwrap().workers[0].dropped, 12, "{files:?}");
    }
    let many = [written("3", &of(3, u64::MAX)), written("4", &of(4, u64::MAX))];
    assert_eq!(read(&many).unwrap().workers[0].dropped, u64::MAX);
}

#[test]
fn files_that_contradict_each_other_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let scope = |span, parent| event(span, parent, 0, Kind::Scope, "x", (1, 9));
    // Each is sound by itself; together they go in a circle.
    write_part(
        &folder.path().join("1"),
        7,
        (0, "a"),
        &[scope(1, 2), scope(3, 1)],
        END,
    );
    write_part(
        &folder.path().join("2"),
        7,
        (0, "a"),
        &[scope(2, 3), scope(1, 0), scope(0, 0)],
        END,
    );
    let paths: [PathBuf; 2] = ["1", "2"].map(|name| folder.path().join(name));
    let parts = read(&paths).unwrap();
    let as_profiles = paths.map(|path| {
        let profile = read(std::slice::from_ref(&path)).unwrap();
        let file = path.with_extension("json");
        profile
            .write_chrome(std::fs::File::create(&file).unwrap())
            .unwrap();
        file
    });
    for profile in [parts, read(&as_profiles).unwrap()] {
        assert_eq!(profile.events.len(), 4, "each number once, and one that had none");
        let first = profile.events.iter().filter(|event| event.parent == 0);
        assert_eq!(first.count(), 2, "{:?}", profile.events);
        assert_eq!(profile.workers.len(), 1);
        assert_eq!(profile.key_averages().0[0].calls, 4);
        assert!(profile.step().is_some() && !profile.steps("x").is_empty());
    }
}
