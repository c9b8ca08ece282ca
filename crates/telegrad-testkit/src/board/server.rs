//! Access to a board from other processes.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Notes;

/// Answers other processes until dropped.
pub(crate) struct Server {
    name: String,
}

impl Server {
    pub(crate) fn start(notes: &Weak<Notes>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "telegrad-testkit-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let listener = UnixListener::bind_addr(&address).expect("a name that no other process has");
        let notes = notes.clone();
        std::thread::spawn(move || {
            // `Server::drop` connects once more, after the notes are dropped.
            while let Ok((stream, _)) = listener.accept() {
                if notes.strong_count() == 0 {
                    return;
                }
                let notes = notes.clone();
                std::thread::spawn(move || answer(stream, &notes));
            }
        });
        Self { name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Wakes the listening thread, if it still runs.
        let address = SocketAddr::from_abstract_name(&self.name);
        let _ = address.and_then(|address| UnixStream::connect_addr(&address));
    }
}

/// Answers one request: words in, notes out, each terminated by a zero.
fn answer(mut stream: UnixStream, notes: &Weak<Notes>) {
    let mut request = String::new();
    if stream.read_to_string(&mut request).is_err() {
        return;
    }
    let Some(notes) = notes.upgrade() else { return };
    let words: Vec<_> = request.split('\0').collect();
    let number = |word: &str| word.parse().unwrap_or(0);
    let found = match words[..] {
        ["post", name, note] => {
            notes.post(name, note);
            Vec::new()
        }
        ["read", name] => notes.read(name),
        ["more", name, seen, millis] => {
            notes.wait_for_more(name, number(seen) as usize, Duration::from_millis(number(millis)))
        }
        ["kill", rank] => {
            if let Some(kill) = &*notes.kill.lock() {
                kill(number(rank) as u32);
            }
            Vec::new()
        }
        _ => Vec::new(),
    };
    let text: String = found.iter().flat_map(|note| [note.as_str(), "\0"]).collect();
    // The requesting process may have been killed meanwhile.
    let _ = stream.write_all(text.as_bytes());
}
