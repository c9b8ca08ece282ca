//! Merging of recordings (S56).

use std::path::PathBuf;

use telegrad_profile::{read, read_worlds};

use super::files::{END, write_part};
use super::*;

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

#[test]
fn recordings_of_different_worlds_are_not_merged() {
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
    // A recording of an unknown world may be merged.
    for files in [[&one, &unknown], [&unknown, &one]] {
        let both = read(&files.map(Clone::clone)).unwrap();
        assert_eq!((both.world, both.events.len()), (Some(7), 8));
    }
    write_part(folder.path(), 9, (5, "e"), &[], END);
    assert!(read(&[one, folder.path().join("5-e-1f.jsonl")]).is_err());
}

/// The events of `a` and `b`, whose clock is a second ahead.
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

/// Asserts that `b` is on the clock of `a`: its execution is within the call.
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
fn folders_of_two_hosts_are_aligned() {
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
fn profiles_of_two_hosts_are_aligned() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = on_two_hosts();
    let written = |rank, name: &str, events| {
        let collected = Collected {
            events,
            ..Collected::default()
        };
        let mut profile = Profile::new(rank, vec![(rank, name.to_owned(), collected)], Vec::new());
        profile.add_named_workers([(0, "a".to_owned()), (1, "b".to_owned())]);
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
    // Merging the result with its parts changes nothing.
    let merged = folder.path().join("merged.jsonl");
    profile
        .write_lines(std::fs::File::create(&merged).unwrap())
        .unwrap();
    let [a, b] = files;
    assert_eq!(read(&[merged, b, a]).unwrap(), profile);
}

#[test]
fn recordings_with_drift_can_be_merged_repeatedly() {
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
        assert!(last.clock_warnings().is_empty());
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
fn dropped_events_are_counted_once() {
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
fn contradicting_files_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let scope = |span, parent| event(span, parent, 0, Kind::Scope, "x", (1, 9));
    // Each file is valid; merged, their events form a cycle.
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
        assert_eq!(
            profile.events.len(),
            4,
            "each span once, and the event without one"
        );
        let first = profile.events.iter().filter(|event| event.parent == 0);
        assert_eq!(first.count(), 2, "{:?}", profile.events);
        assert_eq!(profile.workers.len(), 1);
        assert_eq!(profile.key_averages().0[0].calls, 4);
        assert!(profile.step().is_some() && !profile.steps("x").is_empty());
    }
}
