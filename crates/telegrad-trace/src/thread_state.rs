//! Where a thread is in a recording.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::position::Position;
use crate::recorder::Recorder;
use crate::recorders as watching;
use crate::subscribers::Shown;

#[derive(Clone)]
pub(crate) struct Current {
    recorder: Arc<Recorder>,
    at: Position,
}

/// Where a thread is.
#[derive(Clone, Debug, Default)]
pub(crate) enum Place {
    /// It does nothing for anybody that is known.
    #[default]
    Nowhere,
    /// It works for this worker, on nothing that is recorded.
    Outside(Arc<Recorder>),
    /// It does something that is not recorded.
    Hidden,
    /// It works for a subscriber, which is recorded nowhere.
    Unseen,
    At(Current),
}

impl Place {
    fn kind(&self) -> u8 {
        match self {
            Self::Nowhere => NOWHERE,
            Self::Outside(_) => OUTSIDE,
            Self::Hidden => HIDDEN,
            Self::Unseen => UNSEEN,
            Self::At(_) => AT,
        }
    }

    /// The trace that it is in, and whose recorder that is of.
    pub(crate) fn trace(&self) -> Option<(&Arc<Recorder>, u64)> {
        match self {
            Self::At(current) => Some((&current.recorder, current.at.trace)),
            _ => None,
        }
    }
}

const NOWHERE: u8 = 0;
const HIDDEN: u8 = 1;
const AT: u8 = 2;
const UNSEEN: u8 = 3;
const OUTSIDE: u8 = 4;

/// Beside any of them: subscribers are shown something on this thread. Wherever else it goes meanwhile, and comes back
/// from, this stays.
const MUTED: u8 = 8;

thread_local! {
    static CURRENT: RefCell<Place> = const { RefCell::new(Place::Nowhere) };
    /// The kind of place, for those who come by with every call.
    static KIND: Cell<u8> = const { Cell::new(NOWHERE) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The number of this thread.
pub(crate) fn thread() -> u64 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    let number = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    THREAD.set(number);
    number
}

/// Where this thread is in what this recorder records.
#[inline]
pub(crate) fn of(recorder: &Arc<Recorder>) -> Option<Position> {
    match KIND.get() {
        HIDDEN => None,
        NOWHERE | OUTSIDE => recorder.outside(0),
        _ => somewhere(recorder),
    }
}

fn somewhere(recorder: &Arc<Recorder>) -> Option<Position> {
    if KIND.get() != AT {
        // What is called from here is to know that it is nobody's business.
        return Some(Position::UNSEEN);
    }
    let at = CURRENT.with_borrow(|place| match place {
        Place::At(current) => Arc::ptr_eq(&current.recorder, recorder).then_some(current.at),
        _ => None,
    });
    at.or_else(|| recorder.outside(0))
}

/// Whose worker this thread works for, and where in what that records, for things that the thread itself does.
pub(crate) enum Whereabouts {
    Nowhere,
    Hidden,
    At(Arc<Recorder>, Position),
}

pub(crate) fn whereabouts() -> Whereabouts {
    if KIND.get() & MUTED != 0 {
        return Whereabouts::Hidden;
    }
    CURRENT.with_borrow(|place| match place {
        Place::Nowhere => Whereabouts::Nowhere,
        Place::Outside(recorder) => match recorder.outside(0) {
            Some(at) => Whereabouts::At(recorder.clone(), at),
            None => Whereabouts::Hidden,
        },
        Place::Hidden | Place::Unseen => Whereabouts::Hidden,
        Place::At(Current { recorder, at }) => Whereabouts::At(recorder.clone(), *at),
    })
}

/// What this thread does until this is dropped, it does because a subscriber is shown something.
pub(crate) fn mute() -> Muted {
    let before = KIND.get();
    KIND.set(before | MUTED);
    Muted(before & MUTED != 0)
}

pub(crate) struct Muted(bool);

impl Drop for Muted {
    fn drop(&mut self) {
        if !self.0 {
            KIND.set(KIND.get() & !MUTED);
        }
    }
}

/// Whether a subscriber is being shown something on this thread, which may hold what others wait for: whatever the
/// subscriber does then must not wait for other workers (S47).
pub fn is_showing() -> bool {
    KIND.get() & MUTED != 0
}

/// Whether what this thread does is recorded.
#[inline]
pub fn is_recorded() -> bool {
    match KIND.get() {
        AT => true,
        NOWHERE | OUTSIDE => watching::is_any(),
        _ => false,
    }
}

/// What is recorded from here on is under this, until it is dropped; on the thread where it was made.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Entered {
    /// Nothing when the thread has stayed where it was. Taken out when this is dropped, and by hand, so that
    /// nothing is left to be done where nothing was put in.
    outer: ManuallyDrop<Option<Box<Outer>>>,
    not_send: PhantomData<*const ()>,
}

impl Entered {
    /// The thread stays where it is.
    const NOTHING: Self = Self {
        outer: ManuallyDrop::new(None),
        not_send: PhantomData,
    };
}

/// Where a thread was before.
#[derive(Debug)]
struct Outer {
    place: Place,
    /// What subscribers see it leave.
    shown: Shown,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.at.fmt(f)
    }
}

/// Puts this thread there, and where subscribers are shown that it is.
pub(crate) fn enter(recorder: &Arc<Recorder>, at: Position, shown: Shown) -> Entered {
    let place = if at.is_unseen() {
        Place::Unseen
    } else {
        let recorder = recorder.clone();
        Place::At(Current { recorder, at })
    };
    replace(place, shown)
}

/// Where this thread is, for another one that works for it.
pub(crate) fn place() -> Place {
    if is_showing() {
        return Place::Unseen;
    }
    CURRENT.with_borrow(Clone::clone)
}

/// This thread works for the worker of this recorder from here on, on nothing that is recorded: what it does is, if everything is that
/// the worker does. Without a recorder, it is not.
#[inline]
pub fn outside(recorder: impl FnOnce() -> Option<Arc<Recorder>>) -> Entered {
    if KIND.get() == NOWHERE && !watching::is_any() {
        return Entered::NOTHING;
    }
    let place = recorder().map_or(Place::Hidden, Place::Outside);
    replace(place, Shown::default())
}

/// As [`outside`], unless it is known what this thread works for.
#[inline]
pub fn at_home(recorder: &Arc<Recorder>) -> Entered {
    if KIND.get() != NOWHERE || !watching::is_any() {
        return Entered::NOTHING;
    }
    replace(Place::Outside(recorder.clone()), Shown::default())
}

/// What this thread does from here on is not recorded. What it has other workers do is, if they record everything
/// themselves.
#[inline]
pub fn hide() -> Entered {
    outside(|| None)
}

/// Puts this thread there, and back when this is dropped.
pub(crate) fn replace(with: Place, shown: Shown) -> Entered {
    let outer = Outer {
        place: put(with),
        shown,
    };
    outer.shown.enter();
    Entered {
        outer: ManuallyDrop::new(Some(Box::new(outer))),
        not_send: PhantomData,
    }
}

/// Puts this thread there; where it was before.
fn put(place: Place) -> Place {
    KIND.set(KIND.get() & MUTED | place.kind());
    CURRENT.replace(place)
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(outer) = self.outer.take() {
            back(*outer);
        }
    }
}

/// Puts this thread back where it was.
#[cold]
fn back(outer: Outer) {
    outer.shown.exit();
    drop(put(outer.place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    #[test]
    fn what_a_subscriber_does_is_not_recorded_wherever_it_goes() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let at = Position { trace, span: 9 };
        let entered = enter(&recorder, at, Shown::default());
        {
            let _muted = mute();
            drop(hide());
            drop(enter(&recorder, at, Shown::default()));
            {
                let _again = mute();
            }
            assert!(is_showing() && !is_recorded());
            assert_eq!(of(&recorder), Some(Position::UNSEEN));
            crate::record_function!("unseen");
            // Nor what it has another thread do, which may wait.
            let here = crate::here();
            let helper = std::thread::spawn(move || {
                here.run(|| {
                    crate::record_function!("unseen");
                    assert!(!is_recorded() && !is_showing());
                });
            });
            helper.join().unwrap();
        }
        assert_eq!(of(&recorder), Some(at));
        drop(entered);
        assert!(recorder.collect(trace, 0, true).events.is_empty());
    }
}
