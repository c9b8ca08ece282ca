//! Errors of references and of their values.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use telegrad_rpc::{Error, Options, RemoteErrorKind, init_with};
use telegrad_testkit::{on_every_cluster, on_threads_and_processes};

use super::*;

const LIMIT: Duration = Duration::from_millis(100);

#[remote]
fn fail(why: String) -> Result<i64, String> {
    Err(format!("no: {why}"))
}

#[remote]
fn break_down() -> i64 {
    panic!("it broke")
}

#[remote]
async fn never_ready() -> i64 {
    std::future::pending().await
}

/// Notices its timeout, and returns a value nevertheless.
#[remote]
fn stubborn(board: Board) -> i64 {
    while !telegrad_rpc::is_cancelled() {
        std::thread::yield_now();
    }
    board.raise("timed out");
    1
}

/// An error whose text panics.
#[derive(Debug)]
struct PanickingError;

impl std::error::Error for PanickingError {}

impl std::fmt::Display for PanickingError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("on purpose")
    }
}

#[remote]
fn fail_with_panicking_text() -> Result<i64, PanickingError> {
    Err(PanickingError)
}

/// A value that is decoded as another type.
struct Unreadable;

impl Wire for Unreadable {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.uint(1);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        String::decode(decoder).map(|_| Self)
    }
}

#[remote]
fn read(_: Unreadable) -> i64 {
    0
}

#[remote]
fn unmask(_: Disguised) {}

#[remote]
fn disguise() -> Result<Disguised> {
    let counter = RRef::hold(&World::current()?, Counter::new(0, None)?)?;
    Ok(Disguised(counter))
}

on_every_cluster! { 2 =>
    a_failed_creation_appears_at_every_use
    an_error_whose_text_panics_is_a_panic
    undecodable_arguments_appear_at_every_use
    a_failed_method_appears_at_every_use_of_its_result
    only_the_owner_has_local_access
    a_held_value_cannot_be_fetched
    a_reference_to_another_type_is_refused
    a_creation_that_timed_out_appears_at_every_use
    waiting_for_a_value_times_out
}

#[track_caller]
fn assert_fails(reference: &RRef<i64>, kind: RemoteErrorKind, text: &str) {
    for _ in 0..2 {
        let error = reference.to_here().unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(error.remote().expect("a remote error").kind, kind);
    }
}

/// S29.
fn a_failed_creation_appears_at_every_use(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        for to in 0..2 {
            let failed = world.remote(to, fail, ("why not".into(),)).unwrap();
            let text = format!("`references::errors::fail` failed on worker `w{to}`: no: why not");
            assert_fails(&failed, RemoteErrorKind::Failed, &text);
            let broken = world.remote(to, break_down, ()).unwrap();
            let text = format!("`references::errors::break_down` panicked on worker `w{to}`: it broke");
            assert_fails(&broken, RemoteErrorKind::Panicked, &text);
        }
        let here = world.remote(0, fail, ("why not".into(),)).unwrap();
        let text = "`references::errors::fail` failed on worker `w0`: no: why not";
        assert_eq!(here.local_value().unwrap_err().to_string(), text);
        assert_eq!(here.local_value_mut().unwrap_err().to_string(), text);
    });
}

fn an_error_whose_text_panics_is_a_panic(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        for to in 0..2 {
            let start =
                format!("`references::errors::fail_with_panicking_text` panicked on worker `w{to}`: ");
            let failed = world.remote(to, fail_with_panicking_text, ()).unwrap();
            let text = format!("{start}the worker panicked while it stored the value");
            assert_fails(&failed, RemoteErrorKind::Panicked, &text);
            let error = world.rpc_sync(to, fail_with_panicking_text, ()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{start}the worker panicked while it sent the reply")
            );
        }
    });
}

fn undecodable_arguments_appear_at_every_use(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let unread = world.remote(1, read, (Unreadable,)).unwrap();
        let text = "worker `w1` cannot call `references::errors::read` with these arguments: \
                    element 0: expected a string, found an unsigned integer";
        assert_fails(&unread, RemoteErrorKind::BadArguments, text);
    });
}

#[remote]
impl Counter {
    fn refuse(&self) -> Result<i64, String> {
        Err(format!("{} is no good", self.value))
    }
}

/// S29.
fn a_failed_method_appears_at_every_use_of_its_result(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(1, Counter::new, (3, None)).unwrap();
        let refused = counter.remote(Counter::refuse, ()).unwrap();
        let text = "`references::errors::Counter::refuse` failed on worker `w1`: 3 is no good";
        assert_fails(&refused, RemoteErrorKind::Failed, text);
    });
}

/// S26.
fn only_the_owner_has_local_access(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(1, Counter::new, (3, None)).unwrap();
        let text = "the `references::Counter` of this reference is on worker `w1`, not here on `w0`: \
                    get a copy with `to_here`, or call a function on it with `rpc_sync`";
        let error = counter.local_value().map(drop).unwrap_err();
        assert!(matches!(error, Error::NotOwner { .. }), "{error:?}");
        assert_eq!(error.to_string(), text);
        assert_eq!(counter.local_value_mut().map(drop).unwrap_err().to_string(), text);
    });
}

fn a_held_value_cannot_be_fetched(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        // An `i64` could be sent, but `hold` does not ask for that.
        let held = RRef::hold(&world, 5_i64).unwrap();
        let text = "the result of `telegrad::fetch` cannot leave worker `w0`: \
                    a value of type `i64` is held for use on its worker only; call a function on the reference";
        assert_fails(&held, RemoteErrorKind::BadResult, text);
        assert_eq!(*held.local_value().unwrap(), 5);
    });
}

/// S27.
fn a_reference_to_another_type_is_refused(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let reason = "expected a reference to a `u64`, found a reference to a `references::Counter`";
        let counter = world.remote(1, Counter::new, (3, None)).unwrap();
        let error = world.rpc_sync(1, unmask, (Disguised(counter),)).unwrap_err();
        assert_eq!(error.remote().unwrap().kind, RemoteErrorKind::BadArguments);
        let start = "worker `w1` cannot call `references::errors::unmask` with these arguments: element 0: ";
        assert_eq!(error.to_string(), format!("{start}{reason}"));
        let error = world.rpc_sync(1, disguise, ()).map(drop).unwrap_err();
        assert!(matches!(error, Error::Receive { .. }), "{error:?}");
        let start = "cannot read the result of `references::errors::disguise` from worker `w1`: ";
        assert_eq!(error.to_string(), format!("{start}{reason}"));
    });
}

/// S30.
fn a_creation_that_timed_out_appears_at_every_use(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let limited = world.with_timeout(LIMIT);
        let never = limited.remote(1, never_ready, ()).unwrap();
        let text = "`references::errors::never_ready` took longer than its limit on worker `w1`";
        assert_fails(&never, RemoteErrorKind::TimedOut, text);
        // A function that ignores its time limit is not stopped, and its value is kept.
        let late = limited.remote(1, stubborn, (board.clone(),)).unwrap();
        board.wait("timed out");
        assert_eq!(late.to_here().unwrap(), 1);
    });
}

#[track_caller]
fn assert_timeout(error: &Error, function: &str, worker: &str) {
    let Error::Timeout { limit, elapsed, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(*limit, LIMIT);
    assert!(*elapsed >= LIMIT && *elapsed < LIMIT + PATIENCE, "{elapsed:?}");
    let text = format!(
        "`{function}` on worker `{worker}` took longer than its limit of {LIMIT:?} ({elapsed:?} elapsed)"
    );
    assert_eq!(error.to_string(), text);
}

/// S15.
fn waiting_for_a_value_times_out(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let slow = world.remote(1, slow_number, (board.clone(),)).unwrap();
        let hasty = slow.with_timeout(LIMIT);
        assert_timeout(&hasty.to_here().unwrap_err(), "telegrad::fetch", "w1");
        let here = world.remote(0, slow_number, (board.clone(),)).unwrap();
        let hasty = here.with_timeout(LIMIT);
        assert_timeout(&hasty.local_value().unwrap_err(), "local_value", "w0");
        assert_timeout(&hasty.local_value_mut().unwrap_err(), "local_value_mut", "w0");
        let counter = world.remote(1, Counter::slowly, (1, board.clone())).unwrap();
        let hasty = counter.with_timeout(LIMIT);
        let error = hasty.rpc_sync(Counter::get, ()).unwrap_err();
        assert_timeout(&error, "references::Counter::get", "w1");
        board.raise("make it");
        assert_eq!((slow.to_here().unwrap(), *here.local_value().unwrap()), (1, 1));
        assert_eq!(hasty.rpc_sync(Counter::get, ()).unwrap(), 1);
    });
}

#[remote]
fn slow_number(board: Board) -> i64 {
    board.wait("make it");
    1
}

#[remote(inline)]
fn fetch_inline(number: RRef<i64>) -> Result<i64> {
    number.to_here()
}

#[remote(inline)]
fn look_inline(number: RRef<i64>) -> Result<i64> {
    Ok(*number.local_value()?)
}

on_threads_and_processes! { 2 =>
    waiting_for_a_value_in_an_inline_function_is_an_error
    references_end_with_their_world
    an_immediate_shutdown_fails_waits_for_values
}

fn waiting_for_a_value_in_an_inline_function_is_an_error(cluster: Cluster) {
    on_rank_0(cluster.unix(), |world, board| {
        let slow = world.remote(1, slow_number, (board.clone(),)).unwrap();
        let text = "`references::errors::look_inline` failed on worker `w1`: \
                    cannot wait here: inline functions and subscribers run on the thread that receives the reply. \
                    Remove `inline` from the function, or make the call from another thread";
        let error = world.rpc_sync(1, look_inline, (slow.clone(),)).unwrap_err();
        assert_eq!(error.to_string(), text);
        let error = world.rpc_sync(1, fetch_inline, (slow.clone(),)).unwrap_err();
        assert_eq!(error.to_string(), text.replace("look", "fetch"));
        board.raise("make it");
        assert_eq!(slow.to_here().unwrap(), 1);
        assert_eq!(world.rpc_sync(1, look_inline, (slow.clone(),)).unwrap(), 1);
    });
}

fn references_end_with_their_world(cluster: Cluster) {
    cluster.run(|world| {
        let there = world.remote(1 - world.rank(), double, (2,)).unwrap();
        let here = RRef::new(&world, 3).unwrap();
        assert_eq!(there.to_here().unwrap(), 4);
        world.shutdown().unwrap();
        let check = |error: Error| {
            assert!(matches!(error, Error::ShutDown), "{error:?}");
            assert_eq!(error.to_string(), "this world has been shut down");
        };
        check(there.to_here().unwrap_err());
        check(there.to_here_async().map(drop).unwrap_err());
        check(there.local_value().unwrap_err());
        check(here.to_here().unwrap_err());
        check(here.local_value().unwrap_err());
        check(RRef::new(&world, 1).unwrap_err());
        check(RRef::hold(&world, 1).unwrap_err());
        check(world.remote(0, double, (1,)).unwrap_err());
        // Dropping references has no effect any more.
        drop((here, there));
    });
}

/// Waits for a local value.
#[remote]
fn look(number: RRef<i64>, board: Board) {
    let error = number.local_value().unwrap_err();
    let kind = error.remote().expect("a remote error").kind;
    board.post("seen", &format!("{kind:?}: {error}"));
}

fn an_immediate_shutdown_fails_waits_for_values(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 0 {
            let slow = world.remote(0, slow_number, (board.clone(),)).unwrap();
            let looking = world.rpc_async(0, look, (slow.clone(), board.clone())).unwrap();
            let fetching = slow.to_here_async().unwrap();
            wait_until(&world, || world.debug_info().blocked == 1);
            world.shutdown_now();
            let seen = "ShuttingDown: worker `w0` is shutting down and did not run `remote`";
            assert_eq!(board.read("seen"), seen);
            // To a pending call, the world that ended is a lost worker, also if the call was to itself.
            for (error, function) in [
                (fetching.wait().unwrap_err(), "telegrad::fetch"),
                (looking.wait().unwrap_err(), "references::errors::look"),
            ] {
                let text = format!(
                    "worker `w0` was lost during the call of `{function}`: worker `w0` has shut down"
                );
                assert_eq!(error.to_string(), text);
            }
            board.raise("make it");
        }
    });
}

/// A world of one.
fn alone() -> World {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let options = Options::default().init_method(format!("mem://alone-{number}?rank=0&world_size=1"));
    init_with(&format!("only{number}"), options).unwrap()
}

#[test]
fn a_reference_cannot_leave_its_world() {
    let (first, second) = (alone(), alone());
    let number = first.remote(0, double, (1,)).unwrap();
    let error = second.rpc_sync(0, fetch_inline, (number.clone(),)).unwrap_err();
    let text = format!(
        "cannot send the arguments of `references::errors::fetch_inline` to worker `{}`: \
         a value of type `a reference` cannot be sent: it belongs to another world",
        second.name()
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(number.to_here().unwrap(), 2, "the reference is still usable");
    drop(number);
    first.shutdown().unwrap();
    second.shutdown().unwrap();
}

#[test]
fn the_debug_text_of_a_reference_names_type_and_owner() {
    let world = alone();
    let number = RRef::new(&world, 1_u64).unwrap();
    let text = format!("{number:?}");
    assert!(text.starts_with("RRef<u64>("), "{text}");
    assert!(text.ends_with(&format!(" on `{}`)", world.name())), "{text}");
    drop(number);
    world.shutdown().unwrap();
}
