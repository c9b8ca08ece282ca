//! What happens, in words.

use super::Message;
use super::network::{Load, Thing};
use super::truth::{f, r, w};
use super::world::index;

impl Thing {
    pub(super) fn describe(&self) -> String {
        let (from, to) = (w(self.from), w(self.to));
        match &self.load {
            Load::Request(reference, _) => format!("the request of {from} to {to} for {}", r(*reference)),
            Load::Reply(reference, _) => format!("the reply of {from} to {to} for {}", r(*reference)),
            Load::Reference(handover, _) => format!("{} from {from} to {to}", f(handover.fork)),
            Load::Use(fork, _) => format!("the use of {} by {from} at {to}", f(*fork)),
            Load::Batch(batch) => format!("batch {} from {from} to {to}", batch.number),
            Load::Answers(number, answers) => {
                format!("answers of {from} to batch {number} from {to}: {answers:?}")
            }
        }
    }
}

pub(super) fn message(message: &Message) -> String {
    match *message {
        Message::Hold { fork, giver, .. } => format!("I hold {} from {}", f(fork), w(index(giver))),
        Message::Settle { reference, .. } => format!("settle {}", r(reference)),
        Message::Release { fork, .. } => format!("I release {}", f(fork)),
        Message::Accept { fork } => format!("I accept {}", f(fork)),
        Message::Ask { fork } => format!("has {} arrived?", f(fork)),
        Message::Forget { fork } => format!("{} had arrived", f(fork)),
        Message::Expect { reference } => format!("is {} to come?", r(reference)),
    }
}
