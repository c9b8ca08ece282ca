//! The members of a world, as the cards that they left at the rendezvous.

mod card;
mod roster;

pub(crate) use card::Card;
pub(crate) use roster::Roster;
