//! What can be wrong with bytes.

use thiserror::Error;

use crate::TensorMeta;

/// Why a value could not be encoded, or bytes not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// A frame kind that this version does not know.
    #[error("unknown frame kind {found}: the other side does not speak this protocol")]
    FrameKind {
        /// The byte found.
        found: u8,
    },
    /// A frame longer than is allowed where it stands.
    #[error("a frame claims {length} bytes, the limit is {limit}")]
    FrameTooLong {
        /// What the header claims.
        length: u64,
        /// The limit that it was checked against.
        limit: u64,
    },
    /// The parts of a frame exceed the whole.
    #[error("a frame of {length} bytes claims parts of {parts} bytes")]
    FrameParts {
        /// Body and table together.
        parts: u64,
        /// The whole.
        length: u64,
    },
    /// The tensor table makes no sense.
    #[error("broken tensor table: {what}")]
    TensorTable {
        /// What is wrong.
        what: String,
    },
    /// More tensors than one message can have.
    #[error(
        "{count} tensors in one message, the limit is {limit}: stack them into fewer, or send them with several calls"
    )]
    TooManyTensors {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A tensor's bytes are not as many as its shape needs.
    #[error("a tensor {meta} needs {} bytes, not {found}", .meta.bytes().map_or("too many".into(), |n| n.to_string()))]
    TensorBytes {
        /// What the tensor claims to be.
        meta: TensorMeta,
        /// How many bytes there are.
        found: usize,
    },
    /// The process has no memory for tensors.
    #[error("no memory for {bytes} bytes of tensors")]
    NoMemory {
        /// Their length.
        bytes: u64,
    },
    /// A tensor that cannot be sent.
    #[error("this tensor cannot be sent: {why}")]
    Unsendable {
        /// The tensor library's reason.
        why: String,
    },
    /// A value whose own serialisation failed.
    #[error("a value of type `{what}` cannot be sent: {why}")]
    Unencodable {
        /// Its type.
        what: String,
        /// The serialiser's reason.
        why: String,
    },
    /// A value of another kind than the type being decoded.
    #[error("{}expected {expected}, found {found}", At(.path))]
    Mismatch {
        /// Where in the value, outermost first.
        path: Vec<String>,
        /// What the type wants.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The bytes end inside a value.
    #[error("{}the message ends in the middle of {inside}", At(.path))]
    Truncated {
        /// Where in the value, outermost first.
        path: Vec<String>,
        /// What was being read.
        inside: String,
    },
    /// Bytes are left after the value.
    #[error("{count} bytes left over after the value")]
    LeftOver {
        /// How many.
        count: usize,
    },
    /// A value nested deeper than the decoder follows.
    #[error("{}nested deeper than {limit} levels", At(.path))]
    TooDeep {
        /// Where in the value, outermost first.
        path: Vec<String>,
        /// The limit.
        limit: usize,
    },
}

impl WireError {
    /// The error one level further out: `place` is where in the outer value it happened.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        if let Self::Mismatch { path, .. } | Self::Truncated { path, .. } | Self::TooDeep { path, .. } =
            &mut self
        {
            path.insert(0, place.into());
        }
        self
    }

    /// A value of another kind than wanted.
    pub fn mismatch(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Mismatch {
            path: Vec::new(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// A variant that the enum `of` does not have, or has in another form. For derived code.
    #[doc(hidden)]
    #[cold]
    pub fn unknown_variant(of: &str, known: &[&str], found: &str, payload: bool) -> Self {
        let form = match (known.contains(&found), payload) {
            (false, _) => "",
            (true, true) => " with a payload, which it does not have",
            (true, false) => " without its payload",
        };
        let known = if known.is_empty() {
            "none exist".into()
        } else {
            known.join(", ")
        };
        Self::mismatch(
            format!("a variant of `{of}` ({known})"),
            format!("{}{form}", excerpt(found)),
        )
    }
}

/// Text of the other side for an error message: quoted, and cut because it could be of any length.
pub(crate) fn excerpt(text: &str) -> String {
    const LIMIT: usize = 64;
    match text.char_indices().nth(LIMIT) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

/// Shows a path as the start of a sentence.
struct At<'a>(&'a [String]);

impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "{}: ", self.0.join(", "))
        }
    }
}
