//! Loom models of the ring and of its wake-up protocol.
//!
//! Loom runs each model under every interleaving and every value that a load may return. It fails on an access
//! to a byte that the other thread may still use, on a wrong byte, and on a wake-up that is lost: then all
//! threads sleep.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::heap_ring::{HeapRing, heap_ring};
use super::{RingReader, RingWriter};

type Writer<const N: usize> = RingWriter<Arc<HeapRing<N>>>;
type Reader<const N: usize> = RingReader<Arc<HeapRing<N>>>;

/// Stands for the socket beside the ring: it keeps wake-ups until its thread takes them.
#[derive(Default)]
struct Wakeups {
    pending: Mutex<bool>,
    changed: Condvar,
}

impl Wakeups {
    fn send(&self) {
        *self.pending.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut pending = self.pending.lock().unwrap();
        while !*pending {
            pending = self.changed.wait(pending).unwrap();
        }
        *pending = false;
    }
}

/// Runs a model, with at most this many preemptions of running threads.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Writes the numbers up to `last`, one byte each, and sleeps while the ring is full.
fn write_all<const N: usize>(mut writer: Writer<N>, last: u8, reader: &Wakeups, own: &Wakeups) {
    let writable = writer.readiness();
    let mut next = 1;
    while next <= last {
        let sent = writer.write(&[next]).unwrap();
        if sent > 0 {
            next += 1;
            if writer.take_wakeup_request() {
                reader.send();
            }
        } else if writable.request_wakeup() {
            own.wait();
        }
    }
}

/// Reads once, checks the bytes, and wakes the writer if it requests that. Returns the number of the last byte.
fn read_some<const N: usize>(reader: &mut Reader<N>, last: u8, writer: &Wakeups) -> u8 {
    let mut bytes = [0; N];
    let got = reader.read(&mut bytes).unwrap();
    for (byte, expected) in bytes[..got].iter().zip(last + 1..) {
        assert_eq!(*byte, expected);
    }
    if got > 0 && reader.take_wakeup_request() {
        writer.send();
    }
    last + got as u8
}

/// Reads up to the byte `last`, and sleeps while the ring is empty.
fn read_all<const N: usize>(mut reader: Reader<N>, last: u8, writer: &Wakeups, own: &Wakeups) {
    let readable = reader.readiness();
    let mut seen = 0;
    while seen < last {
        let before = seen;
        seen = read_some(&mut reader, before, writer);
        if seen == before && readable.request_wakeup() {
            own.wait();
            readable.cancel_wakeup();
        }
    }
}

/// Transfers `last` bytes through a ring of `N`.
fn transfer<const N: usize>(last: u8) {
    let (writer, reader) = heap_ring::<N>();
    let for_reader = Arc::new(Wakeups::default());
    let for_writer = Arc::new(Wakeups::default());
    let writing = {
        let (for_reader, for_writer) = (for_reader.clone(), for_writer.clone());
        thread::spawn(move || write_all(writer, last, &for_reader, &for_writer))
    };
    read_all(reader, last, &for_writer, &for_reader);
    writing.join().unwrap();
}

#[test]
fn sleeping_reader_is_woken() {
    check(3, || transfer::<2>(2));
}

#[test]
fn both_sides_sleep_and_are_woken() {
    check(3, || transfer::<1>(3));
}

#[test]
fn bytes_survive_the_end_of_the_ring() {
    check(3, || {
        let (mut writer, mut reader) = heap_ring::<3>();
        writer.write(&[1, 2]).unwrap();
        assert_eq!(reader.read(&mut [0; 2]), Ok(2));
        let writing = thread::spawn(move || writer.write(&[3, 4]).unwrap());
        let mut bytes = [0; 3];
        let got = reader.read(&mut bytes).unwrap();
        let wrote = writing.join().unwrap();
        let all = got + reader.read(&mut bytes[got..]).unwrap();
        assert_eq!((wrote, all, bytes), (2, 2, [3, 4, 0]));
    });
}

/// A thread without the reading half requests the wake-up, as the poller does, while another one reads. At the
/// end the byte was read, or the poller knows of it.
#[test]
fn request_without_the_reading_half_misses_no_bytes() {
    check(3, || {
        let (mut writer, mut reader) = heap_ring::<2>();
        let readable = reader.readiness();
        let for_poller = Arc::new(Wakeups::default());
        let reading = thread::spawn(move || read_some(&mut reader, 0, &Wakeups::default()));
        let writing = {
            let for_poller = for_poller.clone();
            thread::spawn(move || {
                writer.write(&[1]).unwrap();
                if writer.take_wakeup_request() {
                    for_poller.send();
                }
            })
        };
        let found = !readable.request_wakeup();
        let seen = reading.join().unwrap();
        writing.join().unwrap();
        let is_woken = *for_poller.pending.lock().unwrap();
        assert!(seen == 1 || found || is_woken);
    });
}
