//! Rounds whose callers are answered all at once (S50).

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

const LIMIT: Duration = Duration::from_secs(20);

type Joined<R> = Pin<Box<dyn Future<Output = Result<R>> + Send>>;

/// A caller's part in a round of sums.
fn joins(round: &Round<u64>, name: &str, value: u64) -> Joined<u64> {
    Box::pin(round.join_as(name, value, |values| Ok(values.iter().sum())))
}

fn polled<R>(joined: &mut Joined<R>) -> Poll<Result<R>> {
    joined.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<R>(joined: &mut Joined<R>) -> Result<R> {
    match polled(joined) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

/// The error of a round behind an error.
fn cause(error: &Error) -> &RoundError {
    let Error::Other(inner) = error.original() else {
        panic!("{error}")
    };
    inner.downcast_ref().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn the_last_caller_completes_the_round_for_all_and_the_next_one_begins() {
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
    assert_eq!(combined.load(SeqCst), 2, "once a round");
}

#[test]
fn values_are_combined_in_the_order_of_the_callers_names() {
    let round: Round<&str, Vec<&str>> = Round::new(3);
    let mut callers = ["c", "a", "b"].map(|name| Box::pin(round.join_as(name, name, Ok)) as Joined<_>);
    let _ = callers.each_mut().map(polled);
    assert_eq!(ready(&mut callers[0]).unwrap(), ["a", "b", "c"]);
}

#[test]
fn a_caller_that_comes_twice_is_refused_and_its_first_value_stays() {
    let round = Round::new(2);
    let mut first = joins(&round, "a", 1);
    assert!(polled(&mut first).is_pending());
    let error = ready(&mut joins(&round, "a", 50)).unwrap_err();
    let (name, waiting) = ("a".to_owned(), vec!["a".to_owned()]);
    assert_eq!(
        cause(&error),
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
    assert_eq!(ready(&mut joins(&round, "b", 2)).unwrap(), 3);
    assert_eq!(ready(&mut first).unwrap(), 3);
    // In the next round it may come again.
    assert!(polled(&mut joins(&round, "a", 1)).is_pending());
}

#[test]
fn a_caller_that_gives_up_takes_its_value_back() {
    let round = Round::new(2);
    let mut gives_up = joins(&round, "a", 100);
    assert!(polled(&mut gives_up).is_pending());
    drop(gives_up);
    assert_eq!(round.waiting(), [""; 0]);
    // One that was never awaited has handed in nothing.
    drop(joins(&round, "b", 100));
    let mut again = joins(&round, "a", 1);
    assert!(polled(&mut again).is_pending());
    assert_eq!(ready(&mut joins(&round, "b", 2)).unwrap(), 3);
    assert_eq!(ready(&mut again).unwrap(), 3);
}

#[test]
fn an_error_is_that_of_every_caller_and_ends_one_round_only() {
    let round: Round<u64> = Round::new(2);
    let failing =
        |name| -> Joined<u64> { Box::pin(round.join_as(name, 1, |_| Err(Error::other("no such gradient")))) };
    let (mut first, mut second) = (failing("a"), failing("b"));
    assert!(polled(&mut first).is_pending());
    for caller in [&mut second, &mut first] {
        assert_eq!(ready(caller).unwrap_err().to_string(), "no such gradient");
    }
    let mut after = joins(&round, "a", 1);
    assert!(polled(&mut after).is_pending());
    assert_eq!(ready(&mut joins(&round, "b", 1)).unwrap(), 2);
}

#[test]
fn a_panic_is_an_error_of_every_caller_and_ends_one_round_only() {
    let round: Round<u64> = Round::new(2);
    let panicking = |name| -> Joined<u64> { Box::pin(round.join_as(name, 1, |_| panic!("of {}", 7))) };
    let (mut first, mut second) = (panicking("a"), panicking("b"));
    assert!(polled(&mut first).is_pending());
    for caller in [&mut second, &mut first] {
        let error = ready(caller).unwrap_err();
        let message = "of 7".to_owned();
        assert_eq!(cause(&error), &RoundError::Panicked { message });
    }
    let mut after = joins(&round, "a", 1);
    assert!(polled(&mut after).is_pending());
    assert_eq!(ready(&mut joins(&round, "b", 1)).unwrap(), 2);
}

#[test]
fn dropping_a_round_fails_its_callers() {
    let round = Round::new(3);
    let (mut first, mut second) = (joins(&round, "a", 1), joins(&round, "b", 1));
    let mut late = joins(&round, "c", 1);
    assert!(polled(&mut first).is_pending() && polled(&mut second).is_pending());
    drop(round);
    for caller in [&mut first, &mut second] {
        let error = ready(caller).unwrap_err();
        let waiting = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(cause(&error), &RoundError::Dropped { waiting });
    }
    let error = ready(&mut late).unwrap_err();
    assert_eq!(cause(&error), &RoundError::Dropped { waiting: vec![] });
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_round_that_needs_fewer_callers_is_complete_at_once() {
    let round = Round::new(4);
    let woken: [Arc<Woken>; 3] = Default::default();
    let mut callers = [1, 2, 3].map(|number| joins(&round, &number.to_string(), number));
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
        "one caller completes it"
    );
    // That one gives up instead: another has to.
    let [mut first, mut second, third] = callers;
    drop(third);
    assert_eq!(counts(), [0, 1, 1]);
    assert_eq!(ready(&mut second).unwrap(), 3);
    assert_eq!(counts(), [1, 1, 1]);
    assert_eq!(ready(&mut first).unwrap(), 3);
    // Of no callers at all there is no round.
    round.set_callers(0);
    assert_eq!(ready(&mut joins(&round, "a", 5)).unwrap(), 5);
    assert_eq!(Round::<u64>::new(0).callers(), 1);
}

/// What a server of sums keeps.
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

/// Adds a number to the sum, with those of the others.
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

/// Takes part in so many rounds; the sums that it saw.
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
    all_callers_of_all_workers_are_answered_without_a_thread_each
    what_goes_wrong_in_a_round_reaches_the_callers_of_all_workers
}

on_cluster! { threads_of_two: Cluster::threads(2) => a_cancelled_call_is_in_no_round }
on_cluster! { processes_of_two: Cluster::processes(2) => a_lost_caller_is_in_no_round }

fn all_callers_of_all_workers_are_answered_without_a_thread_each(cluster: Cluster) {
    let one_thread = |options: &mut Options| options.num_worker_threads = 1;
    cluster.options(one_thread).run(|world| {
        if world.rank() > 0 {
            return;
        }
        let server = RRef::hold(&world, Server::new(2).unwrap()).unwrap();
        let trainers = [1_u32, 2].map(|rank| world.rpc_async(rank, train, (server.clone(), 50)).unwrap());
        let seen = join_all(trainers).wait().unwrap();
        let expected: Vec<u64> = (1..=50).map(|round| round * (round + 1)).collect();
        assert_eq!(seen, [expected.clone(), expected]);
    });
}

fn what_goes_wrong_in_a_round_reaches_the_callers_of_all_workers(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() > 0 {
            return;
        }
        let server = RRef::hold(&world, Server::new(3).unwrap()).unwrap();
        for (panics, said) in [(false, "no sum"), (true, "panicked: a bad sum")] {
            let fails = |rank: u32| {
                world
                    .rpc_async(rank, fail_from, (server.clone(), panics))
                    .unwrap()
            };
            for error in [0, 1, 2].map(fails).map(|call| call.wait().unwrap_err()) {
                let error = error.remote().unwrap();
                assert_eq!(error.kind, RemoteErrorKind::Failed);
                assert!(error.message.contains(said), "{error}");
            }
        }
        server.rpc_sync(Server::set_callers, (1,)).unwrap();
        let error = world
            .rpc_sync(0, add_from_elsewhere, (server.clone(),))
            .unwrap_err();
        let error = error.remote().unwrap();
        assert_eq!((error.kind, error.worker()), (RemoteErrorKind::Panicked, "w1"));
        server.rpc_sync(Server::set_callers, (3,)).unwrap();
        // By the same worker: the first stays.
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

/// An error of another worker, in the combining function.
#[remote]
async fn add_from_elsewhere(server: RRef<Server>) -> Result<u64> {
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

/// Waits until these callers wait in the round.
fn wait_for(server: &RRef<Server>, names: &[&str]) {
    let waiting = || server.rpc_sync(Server::waiting, ()).unwrap();
    wait_until(LIMIT, || waiting() == names, || format!("{:?}", waiting()));
}

fn a_cancelled_call_is_in_no_round(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() > 0 {
            return;
        }
        let server = world.remote(1, Server::new, (1,)).unwrap();
        server.rpc_sync(Server::set_callers, (2,)).unwrap();
        let call = world.rpc_async(1, add, (server.clone(), 100)).unwrap();
        wait_for(&server, &["w0"]);
        drop(call);
        wait_for(&server, &[]);
        // So does one whose time is up.
        let brief = world.with_timeout(Duration::from_millis(50));
        brief.rpc_sync(1, add, (server.clone(), 100)).unwrap_err();
        wait_for(&server, &[]);
        server.rpc_sync(Server::set_callers, (1,)).unwrap();
        assert_eq!(world.rpc_sync(1, add, (server.clone(), 1)).unwrap(), 1);
    });
}

fn a_lost_caller_is_in_no_round(cluster: Cluster) {
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
