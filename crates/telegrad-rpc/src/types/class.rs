//! Classes of remote functions.

/// The class of a remote function: how its calls are recorded, counted and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// A function of the program.
    #[default]
    User,
    /// Carries messages about references between workers.
    Control,
    /// Collects recordings for a profile.
    Collection,
    /// A member's part in a barrier or a gathering.
    Gathering,
    /// A member's part in a graceful shutdown.
    Shutdown,
    /// Fetches the value of a reference.
    Fetch,
}

impl Class {
    /// Whether calls are recorded. Calls that workers make for their own sake are not.
    pub(crate) fn is_recorded(self) -> bool {
        !matches!(self, Self::Control | Self::Collection)
    }

    /// Whether a call waits for all members of the world.
    pub(crate) fn is_gathering(self) -> bool {
        matches!(self, Self::Gathering | Self::Shutdown)
    }

    /// Whether a call counts among those made and served, which a shutdown waits for. A call that waits for all members must not:
    /// the shutdown itself is made of such calls.
    pub(crate) fn is_counted(self) -> bool {
        !self.is_gathering()
    }

    /// Whether a call does work: latencies are measured of such calls, and they stop the clock of a shutdown's time limit.
    pub(crate) fn is_work(self) -> bool {
        self.is_counted() && self != Self::Control
    }

    /// The flags of its requests and replies.
    pub(crate) fn frame_flags(self) -> u8 {
        match self {
            Self::Control => telegrad_wire::IS_CONTROL,
            _ => 0,
        }
    }
}
