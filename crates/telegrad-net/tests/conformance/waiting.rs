//! Waiting threads: which one reads for the others, and how they wake.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use telegrad_net::{Flush, LinkOptions, Waiting};
use telegrad_wire::FrameKind;

use crate::harness::{
    Answer, Inbox, Kind, LIMIT, Pair, SHORT, Setup, frame, on_every_link, on_sockets, pair, pattern,
};
use crate::raw::{self, answered_by_hand};

on_every_link! {
    threads_that_wait_at_once_all_get_their_answers,
    waiters_are_served_across_hand_overs,
    large_answers_wake_a_waiter,
    a_watched_link_receives_during_and_after_waits,
    a_late_answer_wakes_a_waiter,
    an_interrupt_ends_a_finished_wait,
    a_wait_ends_at_its_deadline,
    a_finished_wait_returns_at_once,
}
on_sockets! {
    a_lone_waiter_reads_its_own_answer,
    a_waiter_that_is_alone_again_reads_its_own_answer,
    a_waiter_beside_one_that_waits_for_long_reads_its_own_answer,
    polling_reads_available_messages,
    a_wait_ends_at_its_deadline_while_others_are_served,
    a_waiter_and_a_watcher_at_once,
}

fn echo(kind: Kind) -> Pair {
    Setup {
        host_inbox: Inbox::echoing(),
        ..Setup::default()
    }
    .pair(kind)
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + LIMIT / 2)
}

/// A wait that ends when the flag is set.
#[derive(Default)]
struct Flag {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn set(&self) {
        *self.set.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Waiting for Flag {
    fn done(&self) -> bool {
        *self.set.lock().unwrap()
    }

    fn park(&self, deadline: Option<Instant>) {
        let left = deadline.map_or(LIMIT, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        let _ = self
            .changed
            .wait_timeout_while(self.set.lock().unwrap(), left, |set| !*set)
            .unwrap();
    }
}

fn a_lone_waiter_reads_its_own_answer(kind: Kind) {
    let pair = echo(kind);
    let roles = pair.dialing.roles.started();
    for call in 0..200 {
        pair.a.send(frame(FrameKind::Request, call, b"echo"));
        pair.a.link.wait(&Answer(&pair.a.inbox, call), soon());
        let answer = pair.a.inbox.next();
        assert_eq!(answer.header.call.0, call);
        assert_eq!(
            answer.thread,
            std::thread::current().id(),
            "another thread woke up for it"
        );
    }
    assert_eq!(pair.dialing.roles.started(), roles);
}

/// Once the other waiter has left, the remaining one reads for itself again.
fn a_waiter_that_is_alone_again_reads_its_own_answer(kind: Kind) {
    let pair = echo(kind);
    pair.a.link.watch(true);
    pair.a.send(frame(FrameKind::Request, 0, b""));
    pair.a.inbox.next();
    pair.a.link.watch(false);
    let mine = |number| {
        call(&pair, number);
        pair.a.inbox.next().thread == std::thread::current().id()
    };
    // Perhaps not the first time, while the poller holds the reader.
    assert!((1..200).any(mine));
    assert!(mine(200));
}

/// As in a shutdown, during which functions still make calls.
fn a_waiter_beside_one_that_waits_for_long_reads_its_own_answer(kind: Kind) {
    let pair = echo(kind);
    let patient = Flag::default();
    let mine = |number| {
        call(&pair, number);
        pair.a.inbox.next().thread == std::thread::current().id()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pair.a.link.wait(&patient, soon()));
        let started = Instant::now();
        let mut calls = (0..).take_while(|_| started.elapsed() < LIMIT / 4).map(mine);
        // The other thread reads first, once it waits.
        let is_read_for = calls.any(|is_mine| !is_mine);
        let reads = calls.any(|is_mine| is_mine);
        patient.set();
        pair.a.link.interrupt();
        assert!(is_read_for, "the other thread never waited");
        assert!(reads, "the other thread woke up for every answer");
    });
}

fn a_late_answer_wakes_a_waiter(kind: Kind) {
    let pair = pair(kind);
    for (number, delay) in (0..).zip([0, 1, 5, 9, 10, 11, 15, 40]) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let answer = Answer(&pair.a.inbox, number);
                pair.a.link.wait(&answer, soon());
                assert!(
                    answer.done(),
                    "the deadline came first, after a delay of {delay} ms"
                );
            });
            std::thread::sleep(Duration::from_millis(delay));
            pair.b.send(frame(FrameKind::Reply, number, b"at last"));
        });
    }
}

fn call(pair: &Pair, call: u64) {
    pair.a.send(frame(FrameKind::Request, call, &call.to_le_bytes()));
    let answer = Answer(&pair.a.inbox, call);
    pair.a.link.wait(&answer, soon());
    assert!(answer.done(), "call {call}");
}

fn threads_that_wait_at_once_all_get_their_answers(kind: Kind) {
    for threads in [2, 5] {
        let pair = echo(kind);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let pair = &pair;
                scope.spawn(move || (0..200).for_each(|i| call(pair, thread << 32 | i)));
            }
        });
        assert_eq!(pair.a.inbox.take(0).len() as u64, threads * 200);
    }
}

/// Leaders and followers change all the time: every hand-over could lose a waiter.
fn waiters_are_served_across_hand_overs(kind: Kind) {
    let pair = echo(kind);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (pair, next) = (&pair, &next);
            scope.spawn(move || {
                for i in 0..300 {
                    call(pair, next.fetch_add(1, SeqCst));
                    match (i + thread) % 5 {
                        0 => pair.a.link.poll(),
                        1 => pair.a.link.watch(true),
                        2 => pair.a.link.interrupt(),
                        _ => std::thread::yield_now(),
                    }
                    if (i + thread) % 5 == 1 {
                        call(pair, next.fetch_add(1, SeqCst));
                        pair.a.link.watch(false);
                    }
                }
            });
        }
    });
    assert_eq!(pair.a.inbox.len() as u64, next.load(SeqCst));
}

fn large_answers_wake_a_waiter(kind: Kind) {
    let pair = echo(kind);
    for call in 0..50 {
        pair.a.send(frame(FrameKind::Request, call, &pattern(100_000, 0)));
        let answer = Answer(&pair.a.inbox, call);
        pair.a.link.wait(&answer, soon());
        assert!(answer.done());
    }
}

fn a_watched_link_receives_during_and_after_waits(kind: Kind) {
    let pair = echo(kind);
    pair.a.link.watch(true);
    // No thread waits.
    pair.a.send(frame(FrameKind::Request, 1, b""));
    assert_eq!(pair.a.inbox.next().header.call.0, 1);
    // A thread waits for something else, and leaves the link as it was.
    call(&pair, 2);
    pair.a.send(frame(FrameKind::Request, 3, b""));
    pair.a.inbox.take(2);
    // Watched twice, and released once.
    pair.a.link.watch(true);
    pair.a.link.watch(false);
    call(&pair, 4);
    pair.a.send(frame(FrameKind::Request, 5, b""));
    pair.a.inbox.take(2);
    pair.a.link.watch(false);
    call(&pair, 6);
}

fn a_waiter_and_a_watcher_at_once(kind: Kind) {
    let pair = pair(kind);
    let never = Flag::default();
    std::thread::scope(|scope| {
        scope.spawn(|| pair.a.link.wait(&never, soon()));
        for i in 0..100 {
            pair.b.send(frame(FrameKind::Reply, i, b""));
            if i % 10 == 0 {
                pair.a.link.watch(true);
            }
            assert_eq!(pair.a.inbox.next().header.call.0, i);
            if i % 10 == 5 {
                pair.a.link.watch(false);
            }
        }
        never.set();
        pair.a.link.interrupt();
    });
}

fn polling_reads_available_messages(kind: Kind) {
    let pair = pair(kind);
    pair.b.send(frame(FrameKind::Reply, 1, b"look"));
    // No other thread reads it, however long that takes.
    while pair.a.inbox.len() == 0 {
        pair.a.link.poll();
        std::thread::yield_now();
    }
    assert_eq!(pair.a.inbox.next().thread, std::thread::current().id());
}

fn an_interrupt_ends_a_finished_wait(kind: Kind) {
    let pair = pair(kind);
    for round in 0..300 {
        let flag = Arc::new(Flag::default());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pair.a.link.wait(&*flag, soon()));
            // At another moment of the wait every time: before it, while polling, asleep.
            let moment = Instant::now() + round * Duration::from_micros(2);
            while Instant::now() < moment {
                std::hint::spin_loop();
            }
            flag.set();
            pair.a.link.interrupt();
            let before = Instant::now();
            waiter.join().unwrap();
            assert!(
                before.elapsed() < LIMIT / 4,
                "it was the deadline that ended round {round}"
            );
        });
    }
}

fn a_wait_ends_at_its_deadline(kind: Kind) {
    let pair = pair(kind);
    let never = Flag::default();
    for others in 0..3 {
        let other = Flag::default();
        std::thread::scope(|scope| {
            for _ in 0..others {
                scope.spawn(|| pair.a.link.wait(&other, soon()));
            }
            let deadline = Instant::now() + SHORT;
            pair.a.link.wait(&never, Some(deadline));
            assert!(Instant::now() >= deadline);
            assert!(!never.done());
            other.set();
            pair.a.link.interrupt();
        });
    }
}

fn a_wait_ends_at_its_deadline_while_others_are_served(kind: Kind) {
    let mut raw = answered_by_hand(kind, LinkOptions::default(), Inbox::reacting(|_, _| ()));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let flood = std::thread::spawn(move || {
        let many: Vec<u8> = (0..1000)
            .flat_map(|i| raw::frame(FrameKind::Reply, i, b"not yours"))
            .collect();
        while !stopped.load(SeqCst) {
            raw.peer.control.write_all(&many).unwrap();
        }
        raw.peer
    });
    let deadline = Instant::now() + SHORT;
    raw.end.link.wait(&Flag::default(), Some(deadline));
    assert!(Instant::now() >= deadline);
    stop.store(true, SeqCst);
    raw.end.link.watch(true);
    let _peer = flood.join().unwrap();
}

fn a_finished_wait_returns_at_once(kind: Kind) {
    let pair = pair(kind);
    let flag = Flag::default();
    flag.set();
    pair.a.link.wait(&flag, None);
    // Neither does a wait on a closed link, done or not.
    pair.a.link.close("over");
    if kind != Kind::Mem {
        pair.a.link.wait(&Flag::default(), None);
    }
    assert!(
        pair.a
            .link
            .send(frame(FrameKind::Request, 1, b""), Flush::Now, None)
            .is_err()
    );
}
