//! The leader's side of a shutdown: collects the reports of all living members.
//!
//! Every member has this state, since any member may become the leader. Reports to a member that is not the leader wait
//! until it becomes the leader or closes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use telegrad_wire::{Rank, Wire};

use crate::types::WorkerInfo;

/// The reports of members in a shutdown.
#[derive(Default)]
pub(crate) struct ShutdownRounds(Mutex<State>);

#[derive(Default)]
struct State {
    /// The living members that are done.
    done: BTreeSet<Rank>,
    /// The lost members and the reasons.
    lost: BTreeMap<Rank, Arc<str>>,
    /// The current round. A report names its round, so that one repeated after a lost connection does not count for the
    /// next.
    round: u64,
    /// The reports of this round: the number of calls that each member has made and served.
    reports: BTreeMap<Rank, u64>,
    /// The sum of the previous round's reports, and the number of lost members at its end.
    before: Option<(u64, usize)>,
    /// Whether the world is over.
    over: bool,
    /// Whether this worker was closed.
    closed: bool,
    /// Wakes the waiting reports.
    wakers: Vec<Waker>,
}

/// The outcome of a round.
#[derive(Clone, Debug, PartialEq, Wire)]
pub(crate) enum Verdict {
    /// Calls were made or served since the previous round: report again in this one.
    Again(u64),
    /// The world is over; these members were lost.
    Over(Vec<Lost>),
}

/// A lost member.
#[derive(Clone, Debug, PartialEq, Wire)]
pub(crate) struct Lost {
    pub(crate) member: WorkerInfo,
    pub(crate) why: String,
}

impl ShutdownRounds {
    /// Notes the loss of a member of a world of `count`; rounds no longer wait for it.
    pub(crate) fn lost(&self, member: Rank, why: &str, count: usize) {
        self.change(count, |state| {
            state.done.remove(&member);
            state.reports.remove(&member);
            state.lost.entry(member).or_insert_with(|| why.into());
        });
    }

    /// Drops the wakers of waiting reports.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let wakers = std::mem::take(&mut state.wakers);
        // Outside the lock: they may hold the worker.
        drop(state);
        drop(wakers);
    }

    /// Returns the lowest rank of a living member in a world of `count`.
    pub(crate) fn leader(&self, count: usize) -> Option<Rank> {
        let state = self.0.lock();
        (0..count as Rank).find(|rank| !state.lost.contains_key(rank))
    }

    /// Whether this worker led the round that ended the world.
    pub(crate) fn is_over(&self) -> bool {
        self.0.lock().over
    }

    /// Returns the living members in a world of `count` without a report: of being done, or, once all are done, of being idle.
    pub(crate) fn unreported(&self, count: usize) -> Vec<Rank> {
        let state = self.0.lock();
        let all_are_done = state.all_are_done(count);
        let has_come = |rank: &Rank| match all_are_done {
            true => state.reports.contains_key(rank),
            false => state.done.contains(rank),
        };
        let living = (0..count as Rank).filter(|rank| !state.lost.contains_key(rank));
        living.filter(|rank| !has_come(rank)).collect()
    }

    pub(crate) fn done(&self, member: Rank, count: usize) {
        self.change(count, |state| {
            state.done.insert(member);
        });
    }

    pub(crate) fn report(&self, member: Rank, round: u64, calls: u64, count: usize) {
        self.change(count, |state| {
            if state.round == round {
                state.reports.insert(member, calls);
            }
        });
    }

    /// Changes the state; wakes waiting reports only when a phase is complete. Waking all at each of n reports would take n²
    /// wake-ups.
    fn change(&self, count: usize, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        let were_done = state.all_are_done(count);
        change(&mut state);
        let are_idle = state.all_are_idle(count);
        if are_idle {
            state.end_round();
        }
        if !are_idle && (were_done || !state.all_are_done(count)) {
            return;
        }
        let wakers = std::mem::take(&mut state.wakers);
        // Outside the lock: a report may run at once.
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Polls for the current round, once all living members are done.
    pub(crate) fn poll_done(&self, count: usize, waker: &Waker) -> Poll<u64> {
        let mut state = self.0.lock();
        if state.all_are_done(count) {
            return Poll::Ready(state.round);
        }
        state.wait(waker)
    }

    /// Polls for the verdict of a round, once all living members have reported.
    pub(crate) fn poll_round(
        &self,
        round: u64,
        waker: &Waker,
        info: impl Fn(Rank) -> Option<WorkerInfo>,
    ) -> Poll<Verdict> {
        let mut state = self.0.lock();
        if state.over {
            return Poll::Ready(Verdict::Over(state.lost_members(info)));
        }
        if state.round != round {
            return Poll::Ready(Verdict::Again(state.round));
        }
        state.wait(waker)
    }
}

impl State {
    fn all_are_done(&self, count: usize) -> bool {
        self.done.len() + self.lost.len() >= count
    }

    fn all_are_idle(&self, count: usize) -> bool {
        !self.reports.is_empty() && self.reports.len() + self.lost.len() >= count
    }

    /// Compares the reports with those of the previous round.
    fn end_round(&mut self) {
        let reports = std::mem::take(&mut self.reports);
        let sum = reports
            .values()
            .fold(0, |sum: u64, calls| sum.wrapping_add(*calls));
        let now = Some((sum, self.lost.len()));
        self.over |= self.before == now;
        self.before = now;
        self.round += 1;
    }

    fn wait<T>(&mut self, waker: &Waker) -> Poll<T> {
        // On a closed worker, the closed link drops the report.
        if !self.closed {
            self.wakers.push(waker.clone());
        }
        Poll::Pending
    }

    fn lost_members(&self, info: impl Fn(Rank) -> Option<WorkerInfo>) -> Vec<Lost> {
        let lost = self.lost.iter();
        let lost = lost.filter_map(|(rank, why)| Some((info(*rank)?, why)));
        lost.map(|(member, why)| Lost {
            member,
            why: why.to_string(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 3;

    fn info(rank: Rank) -> Option<WorkerInfo> {
        let name = format!("w{rank}");
        Some(WorkerInfo { name, rank })
    }

    impl ShutdownRounds {
        fn is_done(&self) -> bool {
            self.poll_done(COUNT, Waker::noop()).is_ready()
        }

        fn verdict(&self, round: u64) -> Option<Verdict> {
            match self.poll_round(round, Waker::noop(), info) {
                Poll::Ready(verdict) => Some(verdict),
                Poll::Pending => None,
            }
        }

        /// Reports a number of calls for each of these members in a round.
        fn meet(&self, members: &[Rank], round: u64, calls: u64) {
            for member in members {
                assert_eq!(self.verdict(round), None, "not all have reported");
                self.report(*member, round, calls, COUNT);
            }
        }
    }

    #[test]
    fn two_equal_rounds_end_a_world() {
        let rounds = ShutdownRounds::default();
        rounds.done(0, COUNT);
        rounds.done(2, COUNT);
        assert!(!rounds.is_done());
        assert_eq!(rounds.unreported(COUNT), [1]);
        rounds.done(1, COUNT);
        assert!(rounds.is_done());
        rounds.meet(&[0, 1, 2], 0, 10);
        rounds.meet(&[2, 0, 1], 1, 11);
        assert_eq!(rounds.verdict(1), Some(Verdict::Again(2)));
        assert!(!rounds.is_over());
        rounds.meet(&[1, 2, 0], 2, 11);
        assert_eq!(rounds.verdict(2), Some(Verdict::Over(Vec::new())));
        assert!(rounds.is_over());
    }

    #[test]
    fn rounds_complete_without_lost_members_and_name_them() {
        let rounds = ShutdownRounds::default();
        assert_eq!(rounds.leader(COUNT), Some(0));
        rounds.done(1, COUNT);
        rounds.done(0, COUNT);
        // Rank 0 was done before it was lost, and counts once.
        rounds.lost(0, "killed", COUNT);
        rounds.lost(0, "gone again", COUNT);
        assert_eq!(rounds.leader(COUNT), Some(1));
        assert!(!rounds.is_done());
        rounds.done(2, COUNT);
        assert!(rounds.is_done());
        rounds.meet(&[1, 2], 0, 5);
        rounds.meet(&[1, 2], 1, 5);
        let lost = Lost {
            member: info(0).unwrap(),
            why: "killed".into(),
        };
        assert_eq!(rounds.verdict(1), Some(Verdict::Over(vec![lost])));
    }

    #[test]
    fn a_loss_completes_a_round_and_asks_for_another() {
        let rounds = ShutdownRounds::default();
        rounds.meet(&[0, 1, 2], 0, 5);
        rounds.meet(&[0, 1], 1, 5);
        rounds.lost(2, "killed", COUNT);
        assert_eq!(rounds.verdict(1), Some(Verdict::Again(2)));
        // The sum is that of two members now.
        rounds.meet(&[0, 1], 2, 5);
        assert!(matches!(rounds.verdict(2), Some(Verdict::Over(lost)) if lost.len() == 1));
    }

    #[test]
    fn a_report_of_an_earlier_round_does_not_count() {
        let rounds = ShutdownRounds::default();
        rounds.meet(&[0, 1, 2], 0, 5);
        rounds.report(0, 0, 5, COUNT);
        rounds.report(1, 1, 5, COUNT);
        rounds.report(2, 1, 5, COUNT);
        assert_eq!(
            rounds.verdict(1),
            None,
            "the report of rank 0 was for the previous round"
        );
        assert_eq!(
            rounds.unreported(COUNT),
            [0, 1, 2],
            "no member has reported being done"
        );
    }
}
