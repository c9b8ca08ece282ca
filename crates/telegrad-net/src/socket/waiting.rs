//! Chooses the reader of the control lane while threads wait.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFlags, eventfd};

use super::SocketLink;
use super::reader::ControlReader;
use crate::{Link, Waiting};

/// How long a waiting thread counts: as the leader, or as one for which the poller reads. A thread that waits for
/// longer, as in a shutdown, would slow all others down.
const LEADER_LIMIT: Duration = Duration::from_millis(10);

impl SocketLink {
    /// Waits until done or the deadline, reading if no other thread does.
    pub(super) fn wait_for(&self, waiting: &dyn Waiting, deadline: Option<Instant>) {
        if waiting.done() {
            return;
        }
        self.flush();
        // Counted before trying to read: a leader that leaves later sees this waiter, and one that left earlier has
        // released the reader.
        let others = self.waiters.fetch_add(1, SeqCst);
        while !waiting.done() && self.closed.get().is_none() {
            let may_lead = others == 0 || !self.is_read_in_background();
            let reader = if may_lead { self.reader.try_lock() } else { None };
            match reader {
                Some(mut reader) => {
                    self.has_leader.store(true, SeqCst);
                    self.set_interest(|interest| interest.reading = false);
                    let is_over = self.lead(&mut reader, waiting, deadline);
                    self.has_leader.store(false, SeqCst);
                    drop(reader);
                    if !is_over {
                        return self.wait_detached(waiting, deadline);
                    }
                }
                None => {
                    // A leader hands over to the poller when it leaves. Without a leader the poller holds the reader,
                    // perhaps for the last time: ask it to continue.
                    self.hand_over();
                    let patience = Instant::now() + LEADER_LIMIT;
                    waiting.park(Some(deadline.map_or(patience, |deadline| deadline.min(patience))));
                    if !waiting.done() && deadline.is_none_or(|deadline| deadline > patience) {
                        return self.wait_detached(waiting, deadline);
                    }
                }
            }
            // Late, because reading the clock costs more than the checks before.
            if !waiting.done() && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        let left = self.waiters.fetch_sub(1, SeqCst) - 1;
        if left > 0 || self.watchers.load(SeqCst) > 0 {
            self.hand_over();
        }
    }

    /// Leaves the reading to the poller and waits without being counted, so that the next waiting thread can lead.
    fn wait_detached(&self, waiting: &dyn Waiting, deadline: Option<Instant>) {
        self.watchers.fetch_add(1, SeqCst);
        self.waiters.fetch_sub(1, SeqCst);
        self.hand_over();
        waiting.park(deadline);
        self.watch(false);
    }

    /// Makes the poller read, unless there is a leader, which hands over when it leaves.
    fn hand_over(&self) {
        self.set_interest(|interest| interest.reading |= !self.has_leader.load(SeqCst));
    }

    /// Reads as the leader until done or the deadline; false after `LEADER_LIMIT` without either.
    fn lead(&self, reader: &mut ControlReader, waiting: &dyn Waiting, deadline: Option<Instant>) -> bool {
        let over = || waiting.done() || self.closed.get().is_some();
        let mut first_look = None;
        self.control.cancel_wakeup();
        while !over() {
            let found = self.read_batch(reader) || {
                let mut spin = reader.spin.clone();
                let found = spin.poll_until(deadline, || (over() || self.read_batch(reader)).then_some(()));
                spin.leave_contended_cpu();
                reader.spin = spin;
                found.is_some()
            };
            if over() {
                break;
            }
            let now = Instant::now();
            // The deadline also applies while messages of others keep coming.
            if found && deadline.is_some_and(|deadline| now >= deadline) {
                break;
            }
            // Without a poller no other thread could read.
            let since = if self.poller.is_closed() {
                now
            } else {
                *first_look.get_or_insert(now)
            };
            let patience = since + LEADER_LIMIT;
            if now >= patience {
                return false;
            }
            if found {
                continue;
            }
            let until = deadline.map_or(patience, |deadline| deadline.min(patience));
            if self.sleep(&over, until) {
                reader.spin.slept(now.elapsed());
            } else if deadline == Some(until) {
                break;
            }
        }
        true
    }

    /// Sleeps until the socket is readable, an interrupt, or the deadline; false at the deadline.
    fn sleep(&self, over: &dyn Fn() -> bool, deadline: Instant) -> bool {
        // Without a descriptor for the wake-up, sleeps in short steps instead.
        let wake = self.wake_fd();
        let step = wake.is_none().then(|| Instant::now() + Duration::from_millis(1));
        self.leader_sleeps.store(true, SeqCst);
        // A thread that finished the wait before this store saw no sleeper; so check again.
        let awake = over() || {
            let until = step.map_or(deadline, |step| deadline.min(step));
            self.control
                .wait(PollFlags::IN, wake.map(|fd| fd.as_fd()), Some(until))
                || Instant::now() < deadline
        };
        self.leader_sleeps.store(false, SeqCst);
        self.drain_wakeups();
        self.control.cancel_wakeup();
        if let Some(wake) = wake {
            // Takes back a wake-up, which rarely came.
            let _ = rustix::io::read(wake, &mut [0_u8; 8]);
        }
        awake
    }

    fn wake_fd(&self) -> Option<&OwnedFd> {
        if self.wake.get().is_none() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            let _ = self.wake.set(fd);
        }
        self.wake.get()
    }

    /// Wakes the leader, if it sleeps.
    pub(super) fn wake_leader(&self) {
        if self.leader_sleeps.load(SeqCst)
            && let Some(wake) = self.wake.get()
        {
            // Cannot fail: the counter is far from its limit.
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }
}
