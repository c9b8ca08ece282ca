//! What all stores have in common, and below what each does with bad input.

mod file;
mod log;
mod method;
mod tcp;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::file_store::FileStore;
use crate::mem_store::MemStore;
use crate::table::{Table, Wait};
use crate::tcp_store::TcpStore;
use crate::{Store, StoreServer};

/// A place where stores can be opened.
enum Meeting {
    Mem(String),
    File(tempfile::TempDir),
    Tcp(StoreServer),
}

impl Meeting {
    fn mem() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self::Mem(format!(
            "rendezvous-test-{}",
            NEXT.fetch_add(1, Ordering::Relaxed)
        ))
    }

    fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    fn tcp() -> Self {
        Self::Tcp(StoreServer::bind("127.0.0.1:0").unwrap())
    }

    fn join(&self) -> Arc<dyn Store> {
        match self {
            Self::Mem(name) => Arc::new(MemStore::open(name)),
            Self::File(directory) => {
                Arc::new(FileStore::open(&directory.path().join("store"), soon()).unwrap())
            }
            Self::Tcp(server) => Arc::new(tcp_store(server)),
        }
    }
}

fn tcp_store(server: &StoreServer) -> TcpStore {
    let address = server.address();
    TcpStore::connect((&address.ip().to_string(), address.port()), soon()).unwrap()
}

/// A deadline that only a failing test meets.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(ToString::to_string).collect()
}

macro_rules! over_all_stores {
    ($($test:ident)*) => {
        mod in_memory { $(#[test] fn $test() { super::$test(&super::Meeting::mem()); })* }
        mod in_a_file { $(#[test] fn $test() { super::$test(&super::Meeting::file()); })* }
        mod over_tcp { $(#[test] fn $test() { super::$test(&super::Meeting::tcp()); })* }
    };
}

over_all_stores! {
    a_key_is_set_once
    values_come_in_the_order_of_the_keys
    a_wait_ends_when_the_last_key_is_set
    a_wait_leaves_the_handle_to_other_threads
    missing_keys_are_named_at_the_deadline
    a_claim_lasts_as_long_as_its_member
    a_claim_is_released_by_its_member_alone
    a_wait_takes_no_claims_of_members_that_left
    many_members_meet_again_and_again
}

fn a_key_is_set_once(meeting: &Meeting) {
    let (a, b) = (meeting.join(), meeting.join());
    assert_eq!(a.insert("key", b"first"), Ok(None));
    assert_eq!(b.insert("key", b"second"), Ok(Some(b"first".to_vec())));
    assert_eq!(a.insert("key", b"third"), Ok(Some(b"first".to_vec())));
    assert_eq!(b.get_all(&keys(&["key"]), soon()), Ok(vec![b"first".to_vec()]));
}

fn values_come_in_the_order_of_the_keys(meeting: &Meeting) {
    let (a, b) = (meeting.join(), meeting.join());
    for (key, value) in [("x", "1"), ("y", ""), ("z", "3")] {
        a.insert(key, value.as_bytes()).unwrap();
    }
    let values = b.get_all(&keys(&["z", "y", "x", "z"]), soon()).unwrap();
    assert_eq!(values, [&b"3"[..], b"", b"1", b"3"]);
    assert_eq!(
        b.get_all(&[], Instant::now()),
        Ok(vec![]),
        "no keys are all there"
    );
}

fn a_wait_ends_when_the_last_key_is_set(meeting: &Meeting) {
    let (a, b) = (meeting.join(), meeting.join());
    let waiting = thread::spawn(move || b.get_all(&keys(&["late", "later"]), soon()));
    a.insert("later", b"2").unwrap();
    a.insert("unrelated", b"").unwrap();
    a.insert("late", b"1").unwrap();
    assert_eq!(waiting.join().unwrap(), Ok(vec![b"1".to_vec(), b"2".to_vec()]));
}

fn a_wait_leaves_the_handle_to_other_threads(meeting: &Meeting) {
    let store = meeting.join();
    let waiting = {
        let store = Arc::clone(&store);
        thread::spawn(move || store.get_all(&keys(&["key"]), soon()))
    };
    // Through the same handle, as often as it takes to be sure that the wait has begun.
    for round in 0..20 {
        store.insert(&format!("other/{round}"), b"").unwrap();
    }
    store.insert("key", b"value").unwrap();
    assert_eq!(waiting.join().unwrap(), Ok(vec![b"value".to_vec()]));
}

fn missing_keys_are_named_at_the_deadline(meeting: &Meeting) {
    let store = meeting.join();
    store.insert("b", b"").unwrap();
    for patience in [Duration::ZERO, Duration::from_millis(60)] {
        let started = Instant::now();
        let error = store
            .get_all(&keys(&["a", "b", "c"]), started + patience)
            .unwrap_err();
        let elapsed = started.elapsed();
        assert!(
            elapsed >= patience && elapsed < Duration::from_secs(10),
            "{elapsed:?}"
        );
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("not set in the store at {} after 0.", store.describe())),
            "{text}"
        );
        assert!(text.ends_with(" s: a, c"), "{text}");
    }
    assert!(
        store.get_all(&keys(&["b"]), Instant::now()).is_ok(),
        "it can be used after that"
    );
}

fn a_claim_lasts_as_long_as_its_member(meeting: &Meeting) {
    let (a, b) = (meeting.join(), meeting.join());
    a.insert("kept", b"1").unwrap();
    assert_eq!(a.claim("key", b"first"), Ok(None));
    assert_eq!(b.claim("key", b"second"), Ok(Some(b"first".to_vec())));
    drop(a);
    // A server notices soon, not at once.
    let until = soon();
    while b.claim("key", b"second").unwrap().is_some() {
        assert!(
            Instant::now() < until,
            "the claim of a member that left is still there"
        );
        thread::yield_now();
    }
    let values = b.get_all(&keys(&["key", "kept"]), soon()).unwrap();
    assert_eq!(values, [&b"second"[..], b"1"], "what was inserted stays");
}

fn a_claim_is_released_by_its_member_alone(meeting: &Meeting) {
    let (a, b) = (meeting.join(), meeting.join());
    a.claim("key", b"first").unwrap();
    a.insert("kept", b"").unwrap();
    b.release("key").unwrap();
    a.release("kept").unwrap();
    a.release("another").unwrap();
    assert!(b.get_all(&keys(&["key", "kept"]), Instant::now()).is_ok());
    a.release("key").unwrap();
    assert_eq!(b.claim("key", b"second"), Ok(None));
}

fn a_wait_takes_no_claims_of_members_that_left(meeting: &Meeting) {
    let (a, b, c) = (meeting.join(), meeting.join(), meeting.join());
    a.claim("1", b"dead").unwrap();
    let waiting = thread::spawn(move || b.get_all(&keys(&["1", "2", "3"]), soon()));
    c.claim("3", b"3").unwrap();
    drop(a);
    while c.get_all(&keys(&["1"]), Instant::now()).is_ok() {
        thread::yield_now();
    }
    c.claim("2", b"2").unwrap();
    let error = c.get_all(&keys(&["1", "2", "3"]), Instant::now()).unwrap_err();
    assert!(error.to_string().ends_with(" s: 1"), "{error}");
    c.claim("1", b"1").unwrap();
    let values = waiting.join().unwrap().unwrap();
    assert_eq!(values, [b"1", b"2", b"3"]);
}

fn many_members_meet_again_and_again(meeting: &Meeting) {
    const MEMBERS: usize = 24;
    const ROUNDS: usize = 4;
    let member = |rank: usize| {
        let store = meeting.join();
        let mut won = 0;
        for round in 0..ROUNDS {
            let card = rank.to_string();
            won += usize::from(
                store
                    .insert(&format!("{round}/leader"), card.as_bytes())
                    .unwrap()
                    .is_none(),
            );
            store.insert(&format!("{round}/{rank}"), card.as_bytes()).unwrap();
            let all: Vec<_> = (0..MEMBERS).map(|rank| format!("{round}/{rank}")).collect();
            let cards = store.get_all(&all, soon()).unwrap();
            assert!((0..MEMBERS).map(|rank| rank.to_string().into_bytes()).eq(cards));
        }
        won
    };
    let won: usize = thread::scope(|scope| {
        let members: Vec<_> = (0..MEMBERS)
            .map(|rank| scope.spawn(move || member(rank)))
            .collect();
        members.into_iter().map(|member| member.join().unwrap()).sum()
    });
    assert_eq!(won, ROUNDS, "of those who set the same key, one comes first");
}

#[test]
fn a_name_starts_empty_when_all_have_left() {
    let meeting = Meeting::mem();
    let (a, b) = (meeting.join(), meeting.join());
    a.insert("key", b"old").unwrap();
    drop(a);
    assert_eq!(
        b.insert("key", b"new"),
        Ok(Some(b"old".to_vec())),
        "one is still there"
    );
    drop(b);
    assert_eq!(meeting.join().insert("key", b"new"), Ok(None));
}

#[test]
fn a_wait_looks_again_for_keys_that_were_removed() {
    let mut table = Table::default();
    let mut wait = Wait::new(keys(&["a", "b"]));
    table.insert("a".into(), vec![1]);
    assert_eq!(wait.values(&table), None);
    table.remove("a");
    table.insert("b".into(), vec![2]);
    assert_eq!(wait.values(&table), None);
    assert_eq!(wait.missing(&table), ["a"]);
    assert!(wait.awaits("a") && !wait.awaits("b"));
    table.insert("a".into(), vec![3]);
    assert_eq!(wait.values(&table), Some(vec![vec![3], vec![2]]));
}
