//! Files that a store must cope with.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use telegrad_rendezvous::{MeetingPoint, RendezvousError, Store};

use super::{keys, member, soon};

/// Tells a process of this test binary which store to join, and as which member.
const CHILD: &str = "TELEGRAD_TEST_FILE_STORE";
const CHILDREN: usize = 6;

fn open(path: &Path) -> Result<Arc<dyn Store>, RendezvousError> {
    let point = MeetingPoint::File(path.into());
    telegrad_rendezvous::open(&member(0, point), None, soon()).map(|opened| opened.store)
}

#[test]
fn processes_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    // Held, so that a child that ends early does not remove the store.
    let store = open(&path).unwrap();
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

/// The other side of the test above. Does nothing when it runs by itself.
#[test]
fn a_child_process() {
    let Ok(child) = std::env::var(CHILD) else { return };
    let (rank, path) = child.split_once(' ').unwrap();
    let store = open(path.as_ref()).unwrap();
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
fn the_last_member_removes_all_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let (a, b) = (open(&path).unwrap(), open(&path).unwrap());
    a.insert("key", b"old").unwrap();
    drop(a);
    assert_eq!(
        b.insert("key", b"new"),
        Ok(Some(b"old".to_vec())),
        "one member is still there"
    );
    drop(b);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_files_of_a_crashed_world_are_cleared() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open(&path).unwrap();
    store.insert("key", b"old").unwrap();
    let log = fs::read(&path).unwrap();
    drop(store);
    for length in 0..=log.len() {
        fs::write(&path, &log[..length]).unwrap();
        fs::write(directory.path().join("store.holder-00"), "").unwrap();
        let store = open(&path).unwrap();
        assert_eq!(store.insert("key", b"new"), Ok(None), "with {length} bytes left");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_file_of_another_program_is_left_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "My dear diary").unwrap();
    let error = open(&path).err().unwrap();
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
    let error = open(&path).err().unwrap();
    let (path, parent) = (path.display(), directory.path().join("no"));
    let why = format!("its directory {} does not exist", parent.display());
    assert_eq!(
        error.to_string(),
        format!("the store file {path} cannot be used: {why}")
    );
}

#[test]
fn damage_to_the_file_fails_a_get_with_its_offset() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("8: the last entry is incomplete", |path| {
            let log = fs::OpenOptions::new().write(true).open(path).unwrap();
            log.set_len(log.metadata().unwrap().len() - 1).unwrap();
        }),
        ("0: the header is incomplete", |path| {
            fs::write(path, b"TGSF").unwrap()
        }),
        (
            "8: a message of 4294967295 bytes is longer than the limit of 16777216",
            |path| {
                fs::write(path, b"TGSF\x02\0\0\0\xff\xff\xff\xff\0\0").unwrap();
            },
        ),
        (
            "0: the file was removed or replaced while workers used it",
            |path| fs::remove_file(path).unwrap(),
        ),
    ];
    for (expected, damage) in damages {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let (a, b) = (open(&path).unwrap(), open(&path).unwrap());
        a.insert("key", b"value").unwrap();
        damage(&path);
        let error = b.get_all(&keys(&["key"]), soon()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the store file {} is damaged at byte {expected}", path.display())
        );
    }
}

#[test]
fn a_truncated_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open(&path).unwrap();
    store.insert("key", b"value").unwrap();
    fs::write(&path, b"TGSF\x02\0\0\0").unwrap();
    let error = store.get_all(&keys(&["other"]), Instant::now()).unwrap_err();
    assert!(
        matches!(&error, RendezvousError::DamagedFile { why, .. } if why == "the file has become shorter"),
        "{error}"
    );
}
