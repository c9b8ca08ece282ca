//! Rounds: calls that are all answered at once (S50).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use telegrad_rpc::{
    Error, Options, RRef, RemoteErrorKind, Result, Round, RoundError, World, join_all, remote,
};
use telegrad_testkit::{Cluster, on_cluster, on_threads_and_processes, wait_until};

/// Long enough for anything on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

type Joined<R> = Pin<Box<dyn Future<Output = Result<R>> + Send>>;

/// Joins a round that sums its values.
fn join_sum(round: &Round<u64>, name: &str, value: u64) -> Joined<u64> {
    Box::pin(round.join_as(name, value, |values| Ok(values.iter().sum())))
}

fn polled<R>(joined: &mut Joined<R>) -> Poll<Result<R>> {
    joined.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<R>(joined: &mut Joined<R>) -> Result<R> {
    match polled(joined) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the round is not complete"),
    }
}

/// Returns the error of a round among the sources of an error.
fn round_error(error: &Error) -> &RoundError {
    let Error::Other(inner) = error.original() else {
        panic!("{error}")
    };
    inner.downcast_ref().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn the_last_caller_completes_the_round_and_the_next_one_begins() {
    let round = Round::new(3);
    let combined = Arc::new(AtomicUsize::new(0));
    for number in [1, 10] {
        let mut callers = ["a", "b", "c"].map(|name| {
            let combined = combined.clone();
            let joined = round.join_as(name, number, move |values: Vec<u64>| {
                combined.fetch_add(1, SeqCst);
                Ok(values.iter().sum::<u64>())
            });
            Box::pin(joined) as Joined<u64>
        });
        assert!(polled(&mut callers[0]).is_pending() && polled(&mut callers[1]).is_pending());
        assert_eq!(round.waiting(), ["a", "b"]);
        let sums = [2, 0, 1].map(|at| ready(&mut callers[at]).unwrap());
        assert_eq!(sums, [3 * number; 3]);
        assert_eq!(round.waiting(), [""; 0]);
    }
    assert_eq!(combined.load(SeqCst), 2, "once per round");
}

#[test]
fn values_are_combined_in_the_order_of_the_callers_names() {
    let round: Round<&str, Vec<&str>> = Round::new(3);
    let mut callers = ["c", "a", "b"].map(|name| Box::pin(round.join_as(name, name, Ok)) as Joined<_>);
    let _ = callers.each_mut().map(polled);
    assert_eq!(ready(&mut callers[0]).unwrap(), ["a", "b", "c"]);
}

#[test]
fn a_second_join_of_a_caller_is_refused_and_its_first_value_stays() {
    let round = Round::new(2);
    let mut first = join_sum(&round, "a", 1);
    assert!(polled(&mut first).is_pending());
    let error = ready(&mut join_sum(&round, "a", 50)).unwrap_err();
    let (name, waiting) = ("a".to_owned(), vec!["a".to_owned()]);
    assert_eq!(
        round_error(&error),
        &RoundError::Twice {
            name,
            waiting,
            callers: 2
        }
    );
    assert!(
        error.to_string().contains("`a` is in this round already"),
        "{error}"
    );
    assert_eq!(ready(&mut join_sum(&round, "b", 2)).unwrap(), 3);
    assert_eq!(ready(&mut first).unwrap(), 3);
    // The caller may join the next round.
    assert!(polled(&mut join_sum(&round, "a", 1)).is_pending());
}

#[test]
fn dropping_a_join_withdraws_its_value() {
    let round = Round::new(2);
    let mut dropped = join_sum(&round, "a", 100);
    assert!(polled(&mut dropped).is_pending());
    drop(dropped);
    assert_eq!(round.waiting(), [""; 0]);
    // A join that was never polled has contributed no value.
    drop(join_sum(&round, "b", 100));
    let mut again = join_sum(&round, "a", 1);
    assert!(polled(&mut again).is_pending());
    assert_eq!(ready(&mut join_sum(&round, "b", 2)).unwrap(), 3);
    assert_eq!(ready(&mut again).unwrap(), 3);
}

#[test]
fn an_error_fails_every_caller_of_one_round_only() {
    let round: Round<u64> = Round::new(2);
    let failing =
        |name| -> Joined<u64> { Box::pin(round.join_as(name, 1, |_| Err(Error::other("no such gradient")))) };
    let (mut first, mut second) = (failing("a"), failing("b"));
    assert!(polled(&mut first).is_pending());
    for caller in [&mut second, &mut first] {
        assert_eq!(ready(caller).unwrap_err().to_string(), "no such gradient");
    }
    let mut after = join_sum(&round, "a", 1);
    assert!(polled(&mut after).is_pending());
    assert_eq!(ready(&mut join_sum(&round, "b", 1)).unwrap(), 2);
}

#[test]
fn a_panic_fails_every_caller_of_one_round_only() {
    let round: Round<u64> = Round::new(2);
    let panicking = |name| -> Joined<u64> { Box::pin(round.join_as(name, 1, |_| panic!("of {}", 7))) };
    let (mut first, mut second) = (panicking("a"), panicking("b"));
    assert!(polled(&mut first).is_pending());
    for caller in [&mut second, &mut first] {
        let error = ready(caller).unwrap_err();
        let message = "of 7".to_owned();
        assert_eq!(round_error(&error), &RoundError::Panicked { message });
    }
    let mut after = join_sum(&round, "a", 1);
    assert!(polled(&mut after).is_pending());
    assert_eq!(ready(&mut join_sum(&round, "b", 1)).unwrap(), 2);
}

#[test]
fn dropping_a_round_fails_its_callers() {
    let round = Round::new(3);
    let (mut first, mut second) = (join_sum(&round, "a", 1), join_sum(&round, "b", 1));
    let mut late = join_sum(&round, "c", 1);
    assert!(polled(&mut first).is_pending() && polled(&mut second).is_pending());
    drop(round);
    for caller in [&mut first, &mut second] {
        let error = ready(caller).unwrap_err();
        let waiting = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(round_error(&error), &RoundError::Dropped { waiting });
    }
    let error = ready(&mut late).unwrap_err();
    assert_eq!(round_error(&error), &RoundError::Dropped { waiting: vec![] });
}

/// Counts how often its waker is called.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_round_that_needs_fewer_callers_is_complete_at_once() {
    let round = Round::new(4);
    let woken: [Arc<WakeCount>; 3] = Default::default();
    let mut callers = [1, 2, 3].map(|number| join_sum(&round, &number.to_string(), number));
    for (caller, woken) in callers.iter_mut().zip(&woken) {
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(caller.as_mut().poll(&mut cx).is_pending());
    }
    let counts = || woken.each_ref().map(|woken| woken.0.load(SeqCst));
    round.set_callers(2);
    assert_eq!(
        (round.callers(), counts()),
        (2, [0, 0, 1]),
        "one caller is woken to complete the round"
    );
    // That caller gives up instead: another is woken.
    let [mut first, mut second, third] = callers;
    drop(third);
    assert_eq!(counts(), [0, 1, 1]);
    assert_eq!(ready(&mut second).unwrap(), 3);
    assert_eq!(counts(), [1, 1, 1]);
    assert_eq!(ready(&mut first).unwrap(), 3);
    // A round has at least one caller.
    round.set_callers(0);
    assert_eq!(ready(&mut join_sum(&round, "a", 5)).unwrap(), 5);
    assert_eq!(Round::<u64>::new(0).callers(), 1);
}

/// A server that adds up the numbers of its callers.
struct Server {
    sum: u64,
    round: Round<u64>,
}

#[remote]
impl Server {
    fn new(callers: usize) -> Result<Self> {
        Ok(Self {
            sum: 0,
            round: Round::new(callers),
        })
    }

    fn waiting(&self) -> Vec<String> {
        self.round.waiting()
    }

    fn set_callers(&self, callers: usize) {
        self.round.set_callers(callers);
    }
}

/// Adds a number to the sum, together with those of the other callers.
#[remote]
async fn add(server: RRef<Server>, number: u64) -> Result<u64> {
    let state = server.clone();
    let added = server.local_value()?.round.join(number, move |numbers| {
        let mut server = state.local_value_mut()?;
        server.sum += numbers.iter().sum::<u64>();
        Ok(server.sum)
    });
    added.await
}

/// Takes part in this many rounds, and returns their sums.
#[remote]
fn train(server: RRef<Server>, rounds: u64) -> Result<Vec<u64>> {
    let world = World::current()?;
    let add = |number| world.rpc_sync(server.owner_name(), add, (server.clone(), number));
    (1..=rounds).map(add).collect()
}

#[remote]
async fn add_wrongly(server: RRef<Server>, panics: bool) -> Result<u64> {
    let joined = server.local_value()?.round.join(0, move |_| {
        assert!(!panics, "a bad sum");
        Err(Error::other("no sum"))
    });
    joined.await
}

on_threads_and_processes! { 3 =>
    a_round_over_all_workers_needs_no_thread_per_caller
    a_failed_round_fails_the_callers_of_all_workers
}

on_cluster! { threads_of_two: Cluster::threads(2) => a_cancelled_call_leaves_its_round }
on_cluster! { processes_of_two: Cluster::processes(2) => a_lost_caller_leaves_its_round }

fn a_round_over_all_workers_needs_no_thread_per_caller(cluster: Cluster) {
    let one_thread = |options: &mut Options| options.num_worker_threads = 1;
    cluster.options(one_thread).run_on_rank_0(|world, _| {
        let server = RRef::hold(&world, Server::new(2).unwrap()).unwrap();
        let trainers = [1_u32, 2].map(|rank| world.rpc_async(rank, train, (server.clone(), 50)).unwrap());
        let seen = join_all(trainers).wait().unwrap();
        let expected: Vec<u64> = (1..=50).map(|round| round * (round + 1)).collect();
        assert_eq!(seen, [expected.clone(), expected]);
    });
}

fn a_failed_round_fails_the_callers_of_all_workers(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let server = RRef::hold(&world, Server::new(3).unwrap()).unwrap();
        for (panics, expected_text) in [(false, "no sum"), (true, "panicked: a bad sum")] {
            let fails = |rank: u32| {
                world
                    .rpc_async(rank, fail_from, (server.clone(), panics))
                    .unwrap()
            };
            for error in [0, 1, 2].map(fails).map(|call| call.wait().unwrap_err()) {
                let error = error.remote().unwrap();
                assert_eq!(error.kind, RemoteErrorKind::Failed);
                assert!(error.message.contains(expected_text), "{error}");
            }
        }
        server.rpc_sync(Server::set_callers, (1,)).unwrap();
        let error = world.rpc_sync(0, add_remotely, (server.clone(),)).unwrap_err();
        let error = error.remote().unwrap();
        assert_eq!((error.kind, error.worker()), (RemoteErrorKind::Panicked, "w1"));
        server.rpc_sync(Server::set_callers, (3,)).unwrap();
        // A second call of the same worker is refused, and the first stays.
        let first = world.rpc_async(0, add, (server.clone(), 1)).unwrap();
        wait_for(&server, &["w0"]);
        let error = world.rpc_sync(0, add, (server.clone(), 1)).unwrap_err();
        assert!(
            error.to_string().contains("`w0` is in this round already"),
            "{error}"
        );
        server.rpc_sync(Server::set_callers, (1,)).unwrap();
        assert_eq!(first.wait().unwrap(), 1);
    });
}

/// Fails in the combining function, with an error of another worker.
#[remote]
async fn add_remotely(server: RRef<Server>) -> Result<u64> {
    let world = World::current()?;
    let joined = server
        .local_value()?
        .round
        .join(0, move |_| world.rpc_sync(1, refuse, ()));
    joined.await
}

#[remote]
fn refuse() -> Result<u64> {
    panic!("not here");
}

#[remote]
fn fail_from(server: RRef<Server>, panics: bool) -> Result<u64> {
    World::current()?.rpc_sync(server.owner_name(), add_wrongly, (server.clone(), panics))
}

/// Waits until these callers are in the round.
fn wait_for(server: &RRef<Server>, names: &[&str]) {
    let waiting = || server.rpc_sync(Server::waiting, ()).unwrap();
    wait_until(LIMIT, || waiting() == names, || format!("{:?}", waiting()));
}

fn a_cancelled_call_leaves_its_round(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let server = world.remote(1, Server::new, (1,)).unwrap();
        server.rpc_sync(Server::set_callers, (2,)).unwrap();
        let call = world.rpc_async(1, add, (server.clone(), 100)).unwrap();
        wait_for(&server, &["w0"]);
        drop(call);
        wait_for(&server, &[]);
        // A call that times out leaves the round too.
        let brief = world.with_timeout(Duration::from_millis(50));
        brief.rpc_sync(1, add, (server.clone(), 100)).unwrap_err();
        wait_for(&server, &[]);
        server.rpc_sync(Server::set_callers, (1,)).unwrap();
        assert_eq!(world.rpc_sync(1, add, (server.clone(), 1)).unwrap(), 1);
    });
}

fn a_lost_caller_leaves_its_round(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            board.wait("over");
            return world.shutdown_now();
        }
        let server = RRef::hold(&world, Server::new(2).unwrap()).unwrap();
        let lost = world.rpc_async(1, train, (server.clone(), 1)).unwrap();
        wait_for(&server, &["w1"]);
        board.raise("over");
        lost.wait().unwrap_err();
        wait_for(&server, &[]);
        server.rpc_sync(Server::set_callers, (1,)).unwrap();
        assert_eq!(world.rpc_sync(0, add, (server.clone(), 3)).unwrap(), 3);
        world.shutdown_now();
    });
}
