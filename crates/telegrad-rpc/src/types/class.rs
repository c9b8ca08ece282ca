//! Classes of remote functions.

/// The class of a remote function: decides how its calls are recorded, counted and sent.
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
    /// Whether calls are recorded. Internal calls of the protocol and of profiles are not.
    pub(crate) fn is_recorded(self) -> bool {
        !matches!(self, Self::Control | Self::Collection)
    }

    /// Whether a call waits for all members of the world.
    pub(crate) fn is_gathering(self) -> bool {
        matches!(self, Self::Gathering | Self::Shutdown)
    }

    /// Whether a call counts among the calls made and served, which a shutdown waits for. Gatherings do not count: the
    /// shutdown itself consists of them.
    pub(crate) fn is_counted(self) -> bool {
        !self.is_gathering()
    }

    /// Whether a call does work of the program: its latency is measured, and it pauses the time limit of a shutdown.
    pub(crate) fn is_work(self) -> bool {
        self.is_counted() && self != Self::Control
    }

    /// Returns the frame flags of requests and replies.
    pub(crate) fn frame_flags(self) -> u8 {
        match self {
            Self::Control => telegrad_wire::IS_CONTROL,
            _ => 0,
        }
    }
}
