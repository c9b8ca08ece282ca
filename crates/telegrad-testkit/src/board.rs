//! Signals between the members of a cluster, independent of the tested code.

mod server;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

use server::Server;

use crate::raise_on_drop::RaiseOnDrop;

/// Time limit of a wait. Shorter than a test's limit, because this error has more detail.
const LIMIT: Duration = Duration::from_secs(30);

/// A board on which the members of a cluster post notes.
///
/// Threads and processes see the same board: a body captures it, and a remote function takes it as an argument. Notes stay on
/// the board, so a wait may start after the post.
///
/// ```
/// # use telegrad_testkit::{Board, Cluster};
/// #[telegrad_rpc::remote]
/// fn hold(board: Board) {
///     board.raise("started");
///     board.wait("go on");
/// }
///
/// let cluster = Cluster::threads(2);
/// let board = cluster.board();
/// cluster.run(move |world| {
///     if world.rank() == 0 {
///         let call = world.rpc_async(1, hold, (board.clone(),)).unwrap();
///         board.wait("started"); // No sleep: it runs now.
///         assert!(!call.done());
///         board.raise("go on");
///         call.wait().unwrap();
///     }
/// });
/// ```
#[derive(Clone)]
pub struct Board(Side);

#[derive(Clone)]
enum Side {
    /// The notes are in this process; other processes may reach them through the server.
    Local(Arc<Notes>),
    /// The notes are in the process that started this one, which listens under this name.
    Remote(Arc<str>),
}

pub(crate) struct Notes {
    number: u64,
    notes: Mutex<HashMap<String, Vec<String>>>,
    changed: Condvar,
    kill: Mutex<Option<Kill>>,
    server: Option<Server>,
}

type Kill = Box<dyn Fn(u32) + Send>;

/// The boards of this process by number, to decode those passed as arguments.
static BOARDS: LazyLock<Mutex<HashMap<u64, Weak<Notes>>>> = LazyLock::new(Mutex::default);

impl Board {
    /// A board of this process.
    #[expect(
        clippy::new_without_default,
        reason = "an empty board is not a default of anything"
    )]
    pub fn new() -> Self {
        Self::with(|_| None)
    }

    /// A board that other processes can access.
    pub(crate) fn shared() -> Self {
        Self::with(|notes| Some(Server::start(notes)))
    }

    fn with(server: impl FnOnce(&Weak<Notes>) -> Option<Server>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let notes = Arc::new_cyclic(|weak| Notes {
            number,
            notes: Mutex::default(),
            changed: Condvar::new(),
            kill: Mutex::new(None),
            server: server(weak),
        });
        BOARDS.lock().insert(number, Arc::downgrade(&notes));
        Self(Side::Local(notes))
    }

    /// The board that [`text`](Self::text) describes.
    pub(crate) fn at(text: &str) -> Self {
        let here = text
            .parse()
            .ok()
            .and_then(|number| BOARDS.lock().get(&number).and_then(Weak::upgrade));
        Self(here.map_or_else(|| Side::Remote(text.into()), Side::Local))
    }

    /// Text by which [`at`](Self::at) finds the board, also in another process.
    pub(crate) fn text(&self) -> String {
        match &self.0 {
            Side::Local(notes) => notes
                .server
                .as_ref()
                .map_or_else(|| notes.number.to_string(), |server| server.name().into()),
            Side::Remote(name) => name.to_string(),
        }
    }

    /// Raises a signal.
    pub fn raise(&self, signal: &str) {
        self.post(signal, "");
    }

    /// Returns a value that raises a signal when it is dropped.
    pub fn raise_on_drop(&self, signal: &'static str) -> RaiseOnDrop {
        RaiseOnDrop {
            board: self.clone(),
            signal,
        }
    }

    /// Waits for a signal.
    ///
    /// # Panics
    /// After half a minute without the signal.
    #[track_caller]
    pub fn wait(&self, signal: &str) {
        self.wait_for(signal, 1);
    }

    /// Waits until a signal has been raised at least `times` times.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_for(&self, signal: &str, times: usize) {
        self.wait_until(signal, LIMIT, |notes| notes.len() >= times);
    }

    /// Number of times that a signal has been raised.
    pub fn count(&self, signal: &str) -> usize {
        self.notes(signal).len()
    }

    /// Posts a note.
    pub fn post(&self, name: &str, note: &str) {
        match &self.0 {
            Side::Local(notes) => notes.post(name, note),
            Side::Remote(at) => drop(ask(at, &["post", name, note])),
        }
    }

    /// Waits for a note and returns the first one.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        self.wait_until(name, LIMIT, |notes| !notes.is_empty())
            .swap_remove(0)
    }

    /// All notes under a name.
    pub fn notes(&self, name: &str) -> Vec<String> {
        match &self.0 {
            Side::Local(notes) => notes.read(name),
            Side::Remote(at) => ask(at, &["read", name]),
        }
    }

    /// Kills the process of a member with `SIGKILL` and waits until it has ended.
    ///
    /// # Panics
    /// When the members are not processes.
    #[track_caller]
    pub fn kill(&self, rank: u32) {
        match &self.0 {
            Side::Local(notes) => match &*notes.kill.lock() {
                Some(kill) => kill(rank),
                None => panic!("only the members of Cluster::processes can be killed"),
            },
            Side::Remote(at) => drop(ask(at, &["kill", &rank.to_string()])),
        }
    }

    /// Sets the function that kills a member.
    pub(crate) fn on_kill(&self, kill: impl Fn(u32) + Send + 'static) {
        if let Side::Local(notes) = &self.0 {
            *notes.kill.lock() = Some(Box::new(kill));
        }
    }

    #[track_caller]
    pub(crate) fn wait_until(
        &self,
        name: &str,
        limit: Duration,
        enough: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        let deadline = Instant::now() + limit;
        let mut seen = self.notes(name);
        while !enough(&seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            let more = match &self.0 {
                Side::Local(notes) => notes.wait_for_more(name, seen.len(), left),
                Side::Remote(at) => ask(
                    at,
                    &[
                        "more",
                        name,
                        &seen.len().to_string(),
                        &left.as_millis().to_string(),
                    ],
                ),
            };
            assert!(
                more.len() > seen.len(),
                "signal `{name}` was not raised within {limit:?}"
            );
            seen = more;
        }
        seen
    }
}

impl Notes {
    fn post(&self, name: &str, note: &str) {
        self.notes
            .lock()
            .entry(name.into())
            .or_default()
            .push(note.into());
        self.changed.notify_all();
    }

    fn read(&self, name: &str) -> Vec<String> {
        self.notes.lock().get(name).cloned().unwrap_or_default()
    }

    /// Waits until there are more than `seen` notes of this name, or for the limit. Returns all of them.
    fn wait_for_more(&self, name: &str, seen: usize, limit: Duration) -> Vec<String> {
        let deadline = Instant::now() + limit;
        let mut notes = self.notes.lock();
        let enough = |notes: &HashMap<String, Vec<String>>| notes.get(name).is_some_and(|n| n.len() > seen);
        while !enough(&notes) && !self.changed.wait_until(&mut notes, deadline).timed_out() {}
        notes.get(name).cloned().unwrap_or_default()
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        BOARDS.lock().remove(&self.number);
    }
}

/// Sends a request to the process that has the notes. One connection per request, as requests are rare.
#[track_caller]
fn ask(at: &str, words: &[&str]) -> Vec<String> {
    let address = SocketAddr::from_abstract_name(at).expect("the name of the server");
    let answer = UnixStream::connect_addr(&address).and_then(|mut stream| {
        stream.write_all(words.join("\0").as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    // Every note ends with a zero, which distinguishes no note from an empty one.
    let answer = answer.unwrap_or_else(|error| panic!("lost the process that started this one: {error}"));
    answer.split_terminator('\0').map(Into::into).collect()
}

impl Wire for Board {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.str(&self.text());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Self::at(decoder.str()?))
    }
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Board").field(&self.text()).finish()
    }
}
