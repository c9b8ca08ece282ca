//! The members of a world: their cards, as exchanged at the rendezvous.

mod card;
mod roster;

pub(crate) use card::Card;
pub(crate) use roster::Roster;
