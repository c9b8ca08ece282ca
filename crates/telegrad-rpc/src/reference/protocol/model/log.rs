//! Texts of the log of steps.

use super::Message;
use super::network::{Content, Packet};
use super::oracle::{f, r, w};
use super::world::index;

impl Packet {
    pub(super) fn describe(&self) -> String {
        let (from, to) = (w(self.from), w(self.to));
        match &self.content {
            Content::Request(reference, _) => format!("the request of {from} to {to} for {}", r(*reference)),
            Content::Reply(reference, _) => format!("the reply of {from} to {to} for {}", r(*reference)),
            Content::Reference(transfer, _) => format!("{} from {from} to {to}", f(transfer.fork)),
            Content::Use(fork, _) => format!("the use of {} by {from} at {to}", f(*fork)),
            Content::Batch(batch) => format!("batch {} from {from} to {to}", batch.number),
            Content::Answers(number, answers) => {
                format!("answers of {from} to batch {number} from {to}: {answers:?}")
            }
        }
    }
}

pub(super) fn message(message: &Message) -> String {
    match *message {
        Message::Hold { fork, sender, .. } => format!("hold {} from {}", f(fork), w(index(sender))),
        Message::Settle { reference, .. } => format!("run_to_idle {}", r(reference)),
        Message::Release { fork, .. } => format!("release {}", f(fork)),
        Message::Accept { fork } => format!("accept {}", f(fork)),
        Message::Ask { fork } => format!("ask for {}", f(fork)),
        Message::Forget { fork } => format!("forget {}", f(fork)),
        Message::Expect { reference } => format!("expect {}", r(reference)),
    }
}
