//! Signals between the members of a cluster, outside of what they test.

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

/// How long to wait for a signal. Shorter than a test's limit, because this error says more.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the members of a cluster leave notes for each other.
///
/// Everybody sees the same board, whether they are threads or processes: a body captures it, and a
/// remote function takes it as an argument. Notes stay; whoever comes late finds them.
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
    Here(Arc<Notes>),
    /// The notes are in the process that started this one, which listens under this name.
    There(Arc<str>),
}

pub(crate) struct Notes {
    number: u64,
    notes: Mutex<HashMap<String, Vec<String>>>,
    changed: Condvar,
    kill: Mutex<Option<Kill>>,
    server: Option<Server>,
}

type Kill = Box<dyn Fn(u32) + Send>;

/// The boards of this process, by number, for those that arrive as arguments.
static BOARDS: LazyLock<Mutex<HashMap<u64, Weak<Notes>>>> = LazyLock::new(Mutex::default);

impl Board {
    /// A board for this process.
    #[expect(
        clippy::new_without_default,
        reason = "an empty board is not a default of anything"
    )]
    pub fn new() -> Self {
        Self::with(|_| None)
    }

    /// A board that other processes can reach.
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
        Self(Side::Here(notes))
    }

    /// The board that [`text`](Self::text) describes.
    pub(crate) fn at(text: &str) -> Self {
        let here = text
            .parse()
            .ok()
            .and_then(|number| BOARDS.lock().get(&number).and_then(Weak::upgrade));
        Self(here.map_or_else(|| Side::There(text.into()), Side::Here))
    }

    /// What another process, or an argument, finds the board by.
    pub(crate) fn text(&self) -> String {
        match &self.0 {
            Side::Here(notes) => notes
                .server
                .as_ref()
                .map_or_else(|| notes.number.to_string(), |server| server.name().into()),
            Side::There(name) => name.to_string(),
        }
    }

    /// Gives a signal.
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
    /// When it has not come after half a minute.
    #[track_caller]
    pub fn wait(&self, signal: &str) {
        self.wait_for(signal, 1);
    }

    /// Waits until a signal has been given `times` times, or more.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_for(&self, signal: &str, times: usize) {
        self.wait_until(signal, PATIENCE, |notes| notes.len() >= times);
    }

    /// How often a signal has been given.
    pub fn count(&self, signal: &str) -> usize {
        self.notes(signal).len()
    }

    /// Leaves a note.
    pub fn post(&self, name: &str, note: &str) {
        match &self.0 {
            Side::Here(notes) => notes.post(name, note),
            Side::There(at) => drop(ask(at, &["post", name, note])),
        }
    }

    /// Waits for a note, and reads the first one.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        self.wait_until(name, PATIENCE, |notes| !notes.is_empty())
            .swap_remove(0)
    }

    /// All notes of a name.
    pub fn notes(&self, name: &str) -> Vec<String> {
        match &self.0 {
            Side::Here(notes) => notes.read(name),
            Side::There(at) => ask(at, &["read", name]),
        }
    }

    /// Kills the process of a member, as `kill -9` does, and waits until it has ended.
    ///
    /// # Panics
    /// When the members are not processes.
    #[track_caller]
    pub fn kill(&self, rank: u32) {
        match &self.0 {
            Side::Here(notes) => match &*notes.kill.lock() {
                Some(kill) => kill(rank),
                None => panic!("only the members of Cluster::processes can be killed"),
            },
            Side::There(at) => drop(ask(at, &["kill", &rank.to_string()])),
        }
    }

    /// How to kill a member.
    pub(crate) fn on_kill(&self, kill: impl Fn(u32) + Send + 'static) {
        if let Side::Here(notes) = &self.0 {
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
                Side::Here(notes) => notes.wait_for_more(name, seen.len(), left),
                Side::There(at) => ask(
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
                "nobody gave the signal `{name}` within {limit:?}"
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

    /// Waits until there are more than `seen` notes of this name, or the limit; all of them.
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

/// Asks the process that has the notes. One connection per question: there are few.
#[track_caller]
fn ask(at: &str, words: &[&str]) -> Vec<String> {
    let address = SocketAddr::from_abstract_name(at).expect("the name that the server has taken");
    let answer = UnixStream::connect_addr(&address).and_then(|mut stream| {
        stream.write_all(words.join("\0").as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    // Every note ends with a zero, so that none and an empty one are told apart.
    let answer = answer.unwrap_or_else(|error| panic!("the process that started this one is gone: {error}"));
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
