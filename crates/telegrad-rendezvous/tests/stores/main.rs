//! What all stores have in common; below, what each does with bad input.

mod file_store;
mod init_method;
mod tcp_store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use telegrad_rendezvous::{MeetingPoint, Membership, Store, StoreServer, open};

/// A meeting point for one test.
struct TestPoint {
    meeting_point: MeetingPoint,
    _directory: Option<TempDir>,
    _server: Option<StoreServer>,
}

impl TestPoint {
    fn mem() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rendezvous-test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self {
            meeting_point: MeetingPoint::Mem(name),
            _directory: None,
            _server: None,
        }
    }

    fn file() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            meeting_point: MeetingPoint::File(directory.path().join("store")),
            _directory: Some(directory),
            _server: None,
        }
    }

    fn tcp() -> Self {
        let server = StoreServer::bind("127.0.0.1:0").unwrap();
        Self {
            meeting_point: tcp_store::meeting_point_of(server.address()),
            _directory: None,
            _server: Some(server),
        }
    }

    /// Opens the store as one more member.
    fn join(&self) -> Arc<dyn Store> {
        open(&member(1, self.meeting_point.clone()), None, soon())
            .unwrap()
            .store
    }
}

/// The member of this rank in a world of two.
fn member(rank: u32, meeting_point: MeetingPoint) -> Membership {
    Membership {
        meeting_point,
        rank,
        world_size: 2,
    }
}

/// A deadline that only a failing test reaches.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(ToString::to_string).collect()
}

macro_rules! over_all_stores {
    ($($test:ident)*) => {
        mod in_memory { $(#[test] fn $test() { super::$test(&super::TestPoint::mem()); })* }
        mod in_a_file { $(#[test] fn $test() { super::$test(&super::TestPoint::file()); })* }
        mod over_tcp { $(#[test] fn $test() { super::$test(&super::TestPoint::tcp()); })* }
    };
}

over_all_stores! {
    a_key_is_set_once
    values_come_in_the_order_of_the_keys
    a_get_returns_when_the_last_key_is_set
    a_pending_get_leaves_the_handle_to_other_threads
    missing_keys_are_named_at_the_deadline
    a_claim_ends_with_its_member
    only_its_own_member_releases_a_claim
    a_pending_get_ignores_claims_of_departed_members
    many_members_meet_in_many_rounds
}

fn a_key_is_set_once(point: &TestPoint) {
    let (a, b) = (point.join(), point.join());
    assert_eq!(a.insert("key", b"first"), Ok(None));
    assert_eq!(b.insert("key", b"second"), Ok(Some(b"first".to_vec())));
    assert_eq!(a.insert("key", b"third"), Ok(Some(b"first".to_vec())));
    assert_eq!(b.get_all(&keys(&["key"]), soon()), Ok(vec![b"first".to_vec()]));
}

fn values_come_in_the_order_of_the_keys(point: &TestPoint) {
    let (a, b) = (point.join(), point.join());
    for (key, value) in [("x", "1"), ("y", ""), ("z", "3")] {
        a.insert(key, value.as_bytes()).unwrap();
    }
    let values = b.get_all(&keys(&["z", "y", "x", "z"]), soon()).unwrap();
    assert_eq!(values, [&b"3"[..], b"", b"1", b"3"]);
    assert_eq!(
        b.get_all(&[], Instant::now()),
        Ok(vec![]),
        "a get of no keys is complete at once"
    );
}

fn a_get_returns_when_the_last_key_is_set(point: &TestPoint) {
    let (a, b) = (point.join(), point.join());
    let get = thread::spawn(move || b.get_all(&keys(&["late", "later"]), soon()));
    a.insert("later", b"2").unwrap();
    a.insert("unrelated", b"").unwrap();
    a.insert("late", b"1").unwrap();
    assert_eq!(get.join().unwrap(), Ok(vec![b"1".to_vec(), b"2".to_vec()]));
}

fn a_pending_get_leaves_the_handle_to_other_threads(point: &TestPoint) {
    let store = point.join();
    let get = {
        let store = Arc::clone(&store);
        thread::spawn(move || store.get_all(&keys(&["key"]), soon()))
    };
    // Through the same handle, and often enough that the get has begun.
    for round in 0..20 {
        store.insert(&format!("other/{round}"), b"").unwrap();
    }
    store.insert("key", b"value").unwrap();
    assert_eq!(get.join().unwrap(), Ok(vec![b"value".to_vec()]));
}

fn missing_keys_are_named_at_the_deadline(point: &TestPoint) {
    let store = point.join();
    store.insert("b", b"").unwrap();
    for limit in [Duration::ZERO, Duration::from_millis(60)] {
        let started = Instant::now();
        let error = store
            .get_all(&keys(&["a", "b", "c"]), started + limit)
            .unwrap_err();
        let elapsed = started.elapsed();
        assert!(
            elapsed >= limit && elapsed < Duration::from_secs(10),
            "{elapsed:?}"
        );
        let text = error.to_string();
        let expected = format!("keys missing from the store at {} after 0.", store.describe());
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.ends_with(" s: a, c"), "{text}");
    }
    assert!(
        store.get_all(&keys(&["b"]), Instant::now()).is_ok(),
        "the store stays usable"
    );
}

fn a_claim_ends_with_its_member(point: &TestPoint) {
    let (a, b) = (point.join(), point.join());
    a.insert("kept", b"1").unwrap();
    assert_eq!(a.claim("key", b"first"), Ok(None));
    assert_eq!(b.claim("key", b"second"), Ok(Some(b"first".to_vec())));
    drop(a);
    // A server notices the disconnect soon, not at once.
    let until = soon();
    while b.claim("key", b"second").unwrap().is_some() {
        assert!(
            Instant::now() < until,
            "the claim of a departed member is still valid"
        );
        thread::yield_now();
    }
    let values = b.get_all(&keys(&["key", "kept"]), soon()).unwrap();
    assert_eq!(values, [&b"second"[..], b"1"], "inserted keys stay");
}

fn only_its_own_member_releases_a_claim(point: &TestPoint) {
    let (a, b) = (point.join(), point.join());
    a.claim("key", b"first").unwrap();
    a.insert("kept", b"").unwrap();
    b.release("key").unwrap();
    a.release("kept").unwrap();
    a.release("another").unwrap();
    assert!(b.get_all(&keys(&["key", "kept"]), Instant::now()).is_ok());
    a.release("key").unwrap();
    assert_eq!(b.claim("key", b"second"), Ok(None));
}

fn a_pending_get_ignores_claims_of_departed_members(point: &TestPoint) {
    let (a, b, c) = (point.join(), point.join(), point.join());
    a.claim("1", b"dead").unwrap();
    let get = thread::spawn(move || b.get_all(&keys(&["1", "2", "3"]), soon()));
    c.claim("3", b"3").unwrap();
    drop(a);
    while c.get_all(&keys(&["1"]), Instant::now()).is_ok() {
        thread::yield_now();
    }
    c.claim("2", b"2").unwrap();
    let error = c.get_all(&keys(&["1", "2", "3"]), Instant::now()).unwrap_err();
    assert!(error.to_string().ends_with(" s: 1"), "{error}");
    c.claim("1", b"1").unwrap();
    let values = get.join().unwrap().unwrap();
    assert_eq!(values, [b"1", b"2", b"3"]);
}

fn many_members_meet_in_many_rounds(point: &TestPoint) {
    const MEMBERS: usize = 24;
    const ROUNDS: usize = 4;
    let meet = |rank: usize| {
        let store = point.join();
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
        let members: Vec<_> = (0..MEMBERS).map(|rank| scope.spawn(move || meet(rank))).collect();
        members.into_iter().map(|member| member.join().unwrap()).sum()
    });
    assert_eq!(won, ROUNDS, "exactly one member per round sets the leader");
}

#[test]
fn a_name_starts_empty_after_its_last_member() {
    let point = TestPoint::mem();
    let (a, b) = (point.join(), point.join());
    a.insert("key", b"old").unwrap();
    drop(a);
    assert_eq!(
        b.insert("key", b"new"),
        Ok(Some(b"old".to_vec())),
        "one member is still there"
    );
    drop(b);
    assert_eq!(point.join().insert("key", b"new"), Ok(None));
}
