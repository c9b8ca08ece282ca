//! What only a file store must stand.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::{keys, soon};
use crate::file_store::FileStore;
use crate::{RendezvousError, Store};

/// Tells a process of this test binary which store to join, and as which member.
const CHILD: &str = "TELEGRAD_TEST_FILE_STORE";
const CHILDREN: usize = 6;

#[test]
fn processes_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    // Held, so that a child which ends early does not take the store along.
    let store = FileStore::open(&path, soon()).unwrap();
    // The test's name without the crate's.
    let (_, module) = module_path!().split_once("::").unwrap();
    let child = |rank: usize| -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::a_child_process")])
            .env(CHILD, format!("{rank} {}", path.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..CHILDREN).map(child).collect();
    let values = store.get_all(&member_keys(99), soon()).unwrap();
    assert!((0..CHILDREN).map(|rank| rank.to_string().into_bytes()).eq(values));
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

/// The other side of the test above. By itself it does nothing.
#[test]
fn a_child_process() {
    let Ok(child) = std::env::var(CHILD) else { return };
    let (rank, path) = child.split_once(' ').unwrap();
    let store = FileStore::open(path.as_ref(), soon()).unwrap();
    for round in 0..100 {
        assert_eq!(
            store.insert(&format!("{round}/{rank}"), rank.as_bytes()),
            Ok(None)
        );
    }
    for round in 0..100 {
        store.get_all(&member_keys(round), soon()).unwrap();
    }
}

fn member_keys(round: usize) -> Vec<String> {
    (0..CHILDREN).map(|rank| format!("{round}/{rank}")).collect()
}

#[test]
fn the_last_member_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let (a, b) = (
        FileStore::open(&path, soon()).unwrap(),
        FileStore::open(&path, soon()).unwrap(),
    );
    a.insert("key", b"old").unwrap();
    drop(a);
    assert_eq!(
        b.insert("key", b"new"),
        Ok(Some(b"old".to_vec())),
        "one is still there"
    );
    drop(b);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_remains_of_a_crashed_world_are_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = FileStore::open(&path, soon()).unwrap();
    store.insert("key", b"old").unwrap();
    let log = fs::read(&path).unwrap();
    drop(store);
    for length in 0..=log.len() {
        fs::write(&path, &log[..length]).unwrap();
        fs::write(directory.path().join("store.holder-00"), "").unwrap();
        let store = FileStore::open(&path, soon()).unwrap();
        assert_eq!(store.insert("key", b"new"), Ok(None), "with {length} bytes left");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_foreign_file_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "My dear diary").unwrap();
    let error = FileStore::open(&path, soon()).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "{} is not a store file of this version of Telegrad: it starts with `My dear `; choose another path",
            path.display()
        )
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "My dear diary");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_missing_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("no/store");
    let error = FileStore::open(&path, soon()).err().unwrap();
    let (path, parent) = (path.display(), directory.path().join("no"));
    let why = format!("its directory {} does not exist", parent.display());
    assert_eq!(
        error.to_string(),
        format!("the store file {path} cannot be used: {why}")
    );
}

#[test]
fn damage_to_the_file_ends_the_wait_with_its_place() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("8: a record is cut off", |path| {
            let log = fs::OpenOptions::new().write(true).open(path).unwrap();
            log.set_len(log.metadata().unwrap().len() - 1).unwrap();
        }),
        ("0: its header is cut off", |path| {
            fs::write(path, b"TGSF").unwrap()
        }),
        (
            "8: a message of 4294967295 bytes is longer than the limit of 16777216",
            |path| {
                fs::write(path, b"TGSF\x02\0\0\0\xff\xff\xff\xff\0\0").unwrap();
            },
        ),
        ("0: it was removed or replaced while workers used it", |path| {
            fs::remove_file(path).unwrap()
        }),
    ];
    for (what, damage) in damages {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let (a, b) = (
            FileStore::open(&path, soon()).unwrap(),
            FileStore::open(&path, soon()).unwrap(),
        );
        a.insert("key", b"value").unwrap();
        damage(&path);
        let error = b.get_all(&keys(&["key"]), soon()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the store file {} is damaged at byte {what}", path.display())
        );
    }
}

#[test]
fn a_file_that_shrinks_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = FileStore::open(&path, soon()).unwrap();
    store.insert("key", b"value").unwrap();
    fs::write(&path, b"TGSF\x02\0\0\0").unwrap();
    let error = store.get_all(&keys(&["other"]), Instant::now()).unwrap_err();
    assert!(
        matches!(&error, RendezvousError::DamagedFile { why, .. } if why == "it has become shorter"),
        "{error}"
    );
}
