//! The roster of a world: the cards of all members.

use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_wire::{Decoder, Incarnation, Rank, Wire, WireError, WorldId, peer_text};

use super::Card;
use crate::error::{Error, Result};
use crate::types::WorkerInfo;

/// The cards of the members of a world.
pub(crate) struct Roster {
    pub(crate) world: WorldId,
    /// By rank.
    pub(crate) cards: Vec<Arc<Card>>,
    by_name: FxHashMap<String, Rank>,
    by_incarnation: FxHashMap<Incarnation, Rank>,
}

/// The rosters in use. The workers of a world in one process share one: n workers with a roster each would read and keep
/// n² cards.
static ROSTERS: LazyLock<Mutex<FxHashMap<WorldId, Weak<Roster>>>> = LazyLock::new(Mutex::default);

impl Roster {
    /// Reads a sheet: the cards of all members, by rank.
    ///
    /// # Errors
    /// When a card cannot be read, a name is invalid, or two members have the same name.
    pub(crate) fn read(sheet: &[u8], store: &str) -> Result<Arc<Self>> {
        let broken =
            |error: WireError| Error::Init(format!("the store at {store} has a broken card: {error}"));
        let mut decoder = Decoder::new(sheet);
        let first = Card::decode(&mut decoder).map_err(broken)?;
        let world = WorldId(first.world);
        if let Some(known) = ROSTERS.lock().get(&world).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let mut cards = vec![Arc::new(first)];
        while !decoder.remaining().is_empty() {
            cards.push(Arc::new(Card::decode(&mut decoder).map_err(broken)?));
        }
        let roster = Arc::new(Self::new(world, cards)?);
        let mut rosters = ROSTERS.lock();
        rosters.retain(|_, roster| roster.strong_count() > 0);
        rosters.insert(world, Arc::downgrade(&roster));
        Ok(roster)
    }

    fn new(world: WorldId, cards: Vec<Arc<Card>>) -> Result<Self> {
        let mut by_name = FxHashMap::default();
        let mut by_incarnation = FxHashMap::default();
        for card in &cards {
            let identity = &card.identity;
            if let Some(problem) = WorkerInfo::name_problem(&identity.name) {
                let (name, rank) = (peer_text(&identity.name), identity.rank);
                return Err(Error::Init(format!(
                    "rank {rank} has the name `{name}`, which {problem}"
                )));
            }
            by_incarnation.insert(identity.incarnation, identity.rank);
            if let Some(first) = by_name.insert(identity.name.clone(), identity.rank) {
                let (name, second) = (&identity.name, identity.rank);
                return Err(Error::Init(format!(
                    "two workers are named `{name}`: rank {first} and rank {second}"
                )));
            }
        }
        Ok(Self {
            world,
            cards,
            by_name,
            by_incarnation,
        })
    }

    /// Returns the card of a rank.
    pub(crate) fn card(&self, rank: Rank) -> Option<&Arc<Card>> {
        self.cards.get(rank as usize)
    }

    /// Returns the rank of a name.
    pub(crate) fn named(&self, name: &str) -> Option<Rank> {
        self.by_name.get(name).copied()
    }

    /// Returns the rank of an incarnation.
    pub(crate) fn rank_of(&self, incarnation: Incarnation) -> Option<Rank> {
        self.by_incarnation.get(&incarnation).copied()
    }

    /// Returns the card of an incarnation.
    pub(crate) fn of_incarnation(&self, incarnation: Incarnation) -> Option<&Arc<Card>> {
        self.card(self.rank_of(incarnation)?)
    }
}
