//! Errors of encoding and decoding.

use thiserror::Error;

use crate::TensorMeta;

/// An error of encoding or decoding.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// Unknown frame kind.
    #[error("unknown frame kind {found}: the peer does not speak this protocol")]
    FrameKind {
        /// The byte found.
        found: u8,
    },
    /// Frame longer than the limit.
    #[error("a frame claims {length} bytes, the limit is {limit}")]
    FrameTooLong {
        /// The length in the header.
        length: u64,
        /// The limit that was applied.
        limit: u64,
    },
    /// The parts of a frame exceed its length.
    #[error("a frame of {length} bytes claims parts of {parts} bytes")]
    FrameParts {
        /// Sum of the lengths of body and tensor table.
        parts: u64,
        /// The length of the frame.
        length: u64,
    },
    /// Invalid tensor table.
    #[error("invalid tensor table: {what}")]
    TensorTable {
        /// The reason.
        what: String,
    },
    /// More tensors than one message can carry.
    #[error(
        "{count} tensors in one message, the limit is {limit}: stack them into fewer, or send them with several calls"
    )]
    TooManyTensors {
        /// Number of tensors.
        count: usize,
        /// Largest number of tensors in a message.
        limit: usize,
    },
    /// The number of bytes does not match the tensor's shape.
    #[error("a tensor {meta} needs {} bytes, not {found}", .meta.bytes().map_or("too many".into(), |n| n.to_string()))]
    TensorBytes {
        /// Element type and shape of the tensor.
        meta: TensorMeta,
        /// Number of bytes found.
        found: usize,
    },
    /// The allocation of memory for tensors failed.
    #[error("cannot allocate {bytes} bytes for tensors")]
    NoMemory {
        /// Length of the allocation.
        bytes: u64,
    },
    /// The tensor cannot be sent.
    #[error("this tensor cannot be sent: {why}")]
    Unsendable {
        /// The tensor library's reason.
        why: String,
    },
    /// The value's own serialisation failed.
    #[error("a value of type `{what}` cannot be sent: {why}")]
    Unencodable {
        /// Type of the value.
        what: String,
        /// The serialiser's reason.
        why: String,
    },
    /// The encoded value has another kind than the decoded type.
    #[error("{}expected {expected}, found {found}", PathPrefix(.path))]
    Mismatch {
        /// Path within the value, outermost first.
        path: Vec<String>,
        /// The kind that the type requires.
        expected: String,
        /// The kind that was found.
        found: String,
    },
    /// The bytes end inside a value.
    #[error("{}the message ends in the middle of {inside}", PathPrefix(.path))]
    Truncated {
        /// Path within the value, outermost first.
        path: Vec<String>,
        /// The value that was being read.
        inside: String,
    },
    /// Bytes remain after the value.
    #[error("{count} bytes left over after the value")]
    LeftOver {
        /// Number of remaining bytes.
        count: usize,
    },
    /// The value is nested deeper than the limit.
    #[error("{}nested deeper than {limit} levels", PathPrefix(.path))]
    TooDeep {
        /// Path within the value, outermost first.
        path: Vec<String>,
        /// The limit.
        limit: usize,
    },
}

impl WireError {
    /// Prepends `step` to the path of the error: the position within the enclosing value.
    #[must_use]
    pub fn at(mut self, step: impl Into<String>) -> Self {
        if let Self::Mismatch { path, .. } | Self::Truncated { path, .. } | Self::TooDeep { path, .. } =
            &mut self
        {
            path.insert(0, step.into());
        }
        self
    }

    /// A [`Mismatch`](Self::Mismatch) with an empty path.
    pub fn mismatch(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Mismatch {
            path: Vec::new(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// The error for a variant that the enum `of` lacks or has in another form. For derived code.
    #[doc(hidden)]
    #[cold]
    pub fn unknown_variant(of: &str, known: &[&str], found: &str, payload: bool) -> Self {
        let form = match (known.contains(&found), payload) {
            (false, _) => "",
            (true, true) => " with a payload, but it has none",
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

/// Quotes and truncates a peer's text for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    const LIMIT: usize = 64;
    match text.char_indices().nth(LIMIT) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

/// Displays a path as the start of a sentence.
struct PathPrefix<'a>(&'a [String]);

impl std::fmt::Display for PathPrefix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "{}: ", self.0.join(", "))
        }
    }
}
