//! What can go wrong in a layer.

use std::fmt;
use std::path::Path;

use candle_core::{DType, Shape};
use thiserror::Error;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a layer, a loss or a file of parameters did not work.
///
/// Its `Debug` text is its `Display` text, because that is what a `main` that returns it prints.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// The output does not lead back to an input that has gradients: training would go on without them.
    #[error(
        "the gradient is lost in {layer}: its input or its parameters have one, its output has none (an operation without a \
         backward pass, or a detached tensor)"
    )]
    LostGradient {
        /// Where.
        layer: String,
    },
    /// An input that has a gradient, and that no gradient reaches from any output.
    #[error(
        "the gradient of input {input} is lost in {layer}: every way from it to an output leads through an operation without a \
         backward pass, or no output depends on it. Replace that operation, or detach the input where it is to have no gradient"
    )]
    LostInput {
        /// Where.
        layer: String,
        /// Its position among the tensors of the inputs, from 0.
        input: usize,
    },
    /// Inputs of other types than a module takes.
    #[error("{layer} takes {takes}, and was called with something else: {why}")]
    Inputs {
        /// The module.
        layer: String,
        /// The types of its inputs.
        takes: String,
        /// What does not fit.
        why: String,
    },
    /// Outputs of other types than the one tensor that `forward` gives.
    #[error("{layer} makes {gives} of {takes}, and `forward` gives one Tensor: use `call`")]
    Outputs {
        /// The module.
        layer: String,
        /// The types of its inputs.
        takes: String,
        /// The types of its outputs.
        gives: String,
    },
    /// Outputs of other types than the caller asked for.
    #[error("the module on worker `{worker}` gives something else than {wanted}: {why}")]
    Wanted {
        /// Where the module is.
        worker: String,
        /// The types that were asked for.
        wanted: String,
        /// What does not fit.
        why: String,
    },
    /// Inputs or outputs that cannot travel.
    #[error("an input or an output of {layer} cannot be sent: {why}")]
    Unsendable {
        /// The module.
        layer: String,
        /// What is wrong with it.
        why: String,
    },
    /// A tensor of a shape or an element type that does not fit.
    #[error("{layer} takes {expected}, not {found}")]
    Input {
        /// What refused it.
        layer: &'static str,
        /// What it takes.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// An element type or a device that a layer has no code for.
    #[error("{layer} computes in f32 or f64 on the CPU, not in {dtype:?} on {device}")]
    Unsupported {
        /// The layer.
        layer: &'static str,
        /// The element type it was given.
        dtype: DType,
        /// The device of the tensor.
        device: &'static str,
    },
    /// A class or a row that does not exist.
    #[error("{layer}: index {index} at position {position} is not below {limit}")]
    Index {
        /// The layer.
        layer: &'static str,
        /// The index.
        index: i64,
        /// Where it stands among the indices, in row-major order.
        position: usize,
        /// How many there are.
        limit: usize,
    },
    /// A layer was to be made with sizes that make no sense.
    #[error("{layer}: {why}")]
    Options {
        /// The layer.
        layer: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A stage of a [`Sequential`](crate::Sequential) failed.
    #[error("stage {index} ({stage}): {source}")]
    Stage {
        /// Its position.
        index: usize,
        /// Its type, and its name if that is not the position.
        stage: String,
        /// How it failed.
        source: Box<Error>,
    },
    /// Values to load whose names are not those of the module's parameters.
    #[error("{}", Difference { missing, unknown })]
    Names {
        /// Parameters of the module without a value to load.
        missing: Vec<String>,
        /// Values to load for parameters that the module does not have.
        unknown: Vec<String>,
    },
    /// A file whose values do not fit the module.
    #[error("`{path}` does not fit the module: {source}")]
    Load {
        /// The file.
        path: String,
        /// What differs.
        source: Box<Error>,
    },
    /// A value to load that does not have the shape or the kind of elements of its parameter.
    #[error("parameter `{name}` is a {expected}, the value to load a {found}")]
    Misfit {
        /// The parameter.
        name: String,
        /// What it is.
        expected: String,
        /// What was to be loaded.
        found: String,
    },
    /// A file of parameters cannot be read or written.
    #[error("`{path}`: {why}")]
    File {
        /// The file.
        path: String,
        /// What failed.
        why: String,
    },
    /// A tensor operation failed.
    #[error(transparent)]
    Tensor(Box<candle_core::Error>),
    /// A call or a parameter failed.
    #[error(transparent)]
    Rpc(Box<telegrad_rpc::Error>),
}

impl Error {
    pub(crate) fn input(layer: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Input {
            layer,
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(crate) fn shape(layer: &'static str, expected: impl Into<String>, found: &Shape) -> Self {
        Self::input(layer, expected, format!("one of shape {:?}", found.dims()))
    }

    /// The same, about values that came from a file.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self::Load {
            path: path.display().to_string(),
            source: Box::new(self),
        }
    }

    pub(crate) fn options(layer: &'static str, why: impl Into<String>) -> Self {
        Self::Options {
            layer,
            why: why.into(),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Tensor(Box::new(error))
    }
}

impl From<telegrad_rpc::Error> for Error {
    fn from(error: telegrad_rpc::Error) -> Self {
        match error {
            telegrad_rpc::Error::Tensor(error) => Self::Tensor(error),
            error => Self::Rpc(Box::new(error)),
        }
    }
}

/// So that `?` works in a model that returns candle's errors.
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Tensor(error) => *error,
            error => Self::wrap(error),
        }
    }
}

/// So that `?` works in a remote function.
impl From<Error> for telegrad_rpc::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Tensor(error) => Self::Tensor(error),
            Error::Rpc(error) => *error,
            error => Self::other(error),
        }
    }
}

/// Which names are only on one side.
struct Difference<'a> {
    missing: &'a [String],
    unknown: &'a [String],
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.missing.is_empty() {
            write!(f, "no value for the parameters {}", Names(self.missing))?;
        }
        if !self.unknown.is_empty() {
            let between = if self.missing.is_empty() { "" } else { "; " };
            write!(f, "{between}the module has no parameters {}", Names(self.unknown))?;
        }
        Ok(())
    }
}

/// Names for a message.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, name) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}`{name}`")?;
        }
        Ok(())
    }
}
