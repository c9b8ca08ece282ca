//! Errors of layers, losses and files of parameters.

use std::fmt;

use candle_core::DType;

use crate::Error;

/// Why a layer, a loss or a file of parameters failed; a variant of [`Error`].
///
/// The `Debug` text is the `Display` text, as that of [`Error`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum NnError {
    /// The output has no gradient although an input or a parameter has one: training would go on without it.
    #[error(
        "the gradient is lost in {layer}: its input or its parameters have one, its output has none (an operation without a \
         backward pass, or a detached tensor)"
    )]
    LostGradient {
        /// The layer.
        layer: String,
    },
    /// No gradient reaches this input from any output, although the input has one.
    #[error(
        "the gradient of input {input} is lost in {layer}: every path from it to an output leads through an operation without \
         a backward pass, or no output depends on it. Replace that operation, or detach the input if it needs no gradient"
    )]
    LostInput {
        /// The layer.
        layer: String,
        /// The position of the input among the tensors of the inputs, from 0.
        input: usize,
    },
    /// The inputs are of other types than the module takes.
    #[error("{layer} takes {takes}, and was called with something else: {why}")]
    Inputs {
        /// The module.
        layer: String,
        /// The types of its inputs.
        takes: String,
        /// The first difference.
        why: String,
    },
    /// `forward` was called on a module with other outputs than one tensor.
    #[error("{layer} makes {gives} of {takes}, and `forward` gives one Tensor: use `call`")]
    Outputs {
        /// The module.
        layer: String,
        /// The types of its inputs.
        takes: String,
        /// The types of its outputs.
        gives: String,
    },
    /// The outputs are of other types than the caller asked for.
    #[error("the module on worker `{worker}` gives something else than {wanted}: {why}")]
    Wanted {
        /// The worker of the module.
        worker: String,
        /// The types asked for.
        wanted: String,
        /// The first difference.
        why: String,
    },
    /// An input or an output cannot be sent.
    #[error("an input or an output of {layer} cannot be sent: {why}")]
    Unsendable {
        /// The module.
        layer: String,
        /// The reason.
        why: String,
    },
    /// A tensor has the wrong shape or element type.
    #[error("{layer} takes {expected}, not {found}")]
    Input {
        /// The layer or function.
        layer: &'static str,
        /// The tensor that it takes.
        expected: String,
        /// The tensor given.
        found: String,
    },
    /// The layer has no code for this element type or device.
    #[error("{layer} computes in f32 or f64 on the CPU, not in {dtype:?} on {device}")]
    Unsupported {
        /// The layer.
        layer: &'static str,
        /// The element type given.
        dtype: DType,
        /// The device of the tensor.
        device: &'static str,
    },
    /// An index names a class or a row that does not exist.
    #[error("{layer}: index {index} at position {position} is not below {limit}")]
    Index {
        /// The layer.
        layer: &'static str,
        /// The index.
        index: i64,
        /// Its position among the indices, in row-major order.
        position: usize,
        /// The number of classes or rows.
        limit: usize,
    },
    /// The sizes or options of a layer are invalid.
    #[error("{layer}: {why}")]
    Options {
        /// The layer.
        layer: &'static str,
        /// The reason.
        why: String,
    },
    /// A stage of a `Sequential` failed.
    #[error("stage {index} ({stage}): {source}")]
    Stage {
        /// The position of the stage.
        index: usize,
        /// The type of the stage, and its name if it has one.
        stage: String,
        /// The cause, part of the error's text and not returned by `source()`.
        r#source: Box<Error>,
    },
    /// The names of the values to load are not those of the module's parameters.
    #[error("{}", Difference { missing, unknown })]
    Names {
        /// Parameters of the module without a value to load.
        missing: Vec<String>,
        /// Values to load without a parameter of the module.
        unknown: Vec<String>,
    },
    /// The values in a file do not fit the module.
    #[error("`{path}` does not fit the module: {source}")]
    Load {
        /// The file.
        path: String,
        /// The cause, part of the error's text and not returned by `source()`.
        r#source: Box<Error>,
    },
    /// A value to load has another shape or kind of elements than its parameter.
    #[error("parameter `{name}` is a {expected}, the value to load a {found}")]
    Misfit {
        /// The parameter.
        name: String,
        /// The parameter's element type and shape.
        expected: String,
        /// The value's.
        found: String,
    },
    /// A file of parameters cannot be read or written.
    #[error("`{path}`: {why}")]
    File {
        /// The file.
        path: String,
        /// The cause.
        why: String,
    },
}

impl fmt::Debug for NnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The names that only one side has.
struct Difference<'a> {
    missing: &'a [String],
    unknown: &'a [String],
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.missing.is_empty() {
            write!(f, "no value for the parameters {}", AllNames(self.missing))?;
        }
        if !self.unknown.is_empty() {
            let between = if self.missing.is_empty() { "" } else { "; " };
            write!(
                f,
                "{between}the module has no parameters {}",
                AllNames(self.unknown)
            )?;
        }
        Ok(())
    }
}

/// Names in backticks, all of them: a state dict is fixed by hand.
struct AllNames<'a>(&'a [String]);

impl fmt::Display for AllNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, name) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}`{name}`")?;
        }
        Ok(())
    }
}
