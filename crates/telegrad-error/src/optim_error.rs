//! Errors of optimisers.

use std::fmt;
use std::path::PathBuf;

use candle_core::{DType, Shape};

use crate::Error;
use crate::list::Names;

/// Why an optimiser could not be created, stepped, saved or loaded; a variant of [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimError {
    /// The value of an option is out of range.
    #[error("{of}: `{option}` is {value}, but {must}")]
    Option {
        /// The algorithm or schedule.
        of: &'static str,
        /// The option.
        option: &'static str,
        /// Its value.
        value: f64,
        /// The requirement.
        must: &'static str,
    },
    /// Two options contradict each other.
    #[error("{of}: {why}")]
    Options {
        /// The algorithm or schedule.
        of: &'static str,
        /// The contradiction.
        why: &'static str,
    },
    /// There are no parameters to optimise.
    #[error("an optimiser needs at least one parameter")]
    NoParameters,
    /// A parameter was given twice.
    #[error("{parameter} was given before: every parameter belongs to one group, once")]
    Duplicate {
        /// The parameter.
        parameter: String,
    },
    /// The elements of a parameter are not floating-point numbers of 16, 32 or 64 bits.
    #[error(
        "{parameter} has elements of type {dtype:?}, which cannot be optimised: use f16, bf16, f32 or f64"
    )]
    ParameterDType {
        /// The parameter.
        parameter: String,
        /// Its element type.
        dtype: DType,
    },
    /// The optimiser has no such group.
    #[error("there is no group {group} in an optimiser with {groups}: groups count from 0")]
    NoGroup {
        /// The group asked for.
        group: usize,
        /// The number of groups.
        groups: usize,
    },
    /// A gradient has another shape than its parameter.
    #[error("{parameter} has shape {expected:?}, its gradient {found:?}")]
    GradientShape {
        /// The parameter.
        parameter: String,
        /// Its shape.
        expected: Shape,
        /// The gradient's.
        found: Shape,
    },
    /// A gradient has another element type than its parameter.
    #[error("{parameter} has elements of type {expected:?}, its gradient {found:?}")]
    GradientDType {
        /// The parameter.
        parameter: String,
        /// Its element type.
        expected: DType,
        /// The gradient's.
        found: DType,
    },
    /// The elements of a gradient are not floating-point numbers of 16, 32 or 64 bits.
    #[error("there is no norm of a gradient with elements of type {dtype:?}")]
    NormDType {
        /// Its element type.
        dtype: DType,
    },
    /// No parameter of the optimiser has a gradient.
    #[error(
        "none of the {count} parameters of the optimiser has a gradient: the loss uses none of them, or an operation without a \
         backward pass lies in between"
    )]
    NoGradients {
        /// The number of parameters.
        count: usize,
    },
    /// The factor to scale gradients by is not a number.
    #[error("gradients cannot be scaled by {0}")]
    Scale(f64),
    /// Some owners of parameters failed; the others completed the operation.
    #[error("{}", Owners(.0))]
    Owners(Vec<(String, Error)>),
    /// Some owners did not return the norm of their gradients. No owner made a step.
    #[error("no step was made, because the norm of all gradients is not known: {}", Owners(.0))]
    Norm(Vec<(String, Error)>),
    /// Gradients to clip are infinite or not numbers on these workers. No owner made a step.
    #[error(
        "no step was made, because the gradients of the parameters of worker {} are infinite or not numbers and cannot be \
         clipped", Names(.0)
    )]
    NotFinite(Vec<String>),
    /// The groups of a distributed optimiser have different algorithms.
    #[error("all groups of an optimiser have the same algorithm, not `{0}` and `{1}`")]
    Mixed(&'static str, &'static str),
    /// The file comes from a world with other owners of parameters.
    #[error("`{}` was saved with parameters on {found}, here they are on {expected}", path.display())]
    OtherOwners {
        /// The file.
        path: PathBuf,
        /// The workers here.
        expected: String,
        /// The workers in the file.
        found: String,
    },
    /// The file cannot be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error, part of this error's text and not returned by `source()`.
        r#source: std::io::Error,
    },
    /// The file is not a saved optimiser, or is damaged.
    #[error("`{}` is not a saved optimiser: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first problem found.
        why: String,
    },
    /// The file comes from a later version of this crate.
    #[error("`{}` has format {found}, this program reads up to {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The latest known format.
        known: u64,
    },
    /// The file belongs to another algorithm.
    #[error("`{}` holds the state of `{found}`, this optimiser is `{expected}`", path.display())]
    OtherAlgorithm {
        /// The file.
        path: PathBuf,
        /// The algorithm here.
        expected: &'static str,
        /// The algorithm in the file.
        found: String,
    },
    /// The file belongs to other parameters.
    #[error("`{}` is of other parameters: {what} is {expected} here and {found} in the file", path.display())]
    OtherParameters {
        /// The file.
        path: PathBuf,
        /// The property that differs.
        what: String,
        /// Its value here.
        expected: String,
        /// Its value in the file.
        found: String,
    },
    /// The file has no values of the parameters.
    #[error("`{}` holds no values of parameters: it was saved without them", path.display())]
    NoValues {
        /// The file.
        path: PathBuf,
    },
}

/// Failures by owner.
struct Owners<'a>(&'a [(String, Error)]);

impl fmt::Display for Owners<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (worker, error)) in self.0.iter().enumerate() {
            let between = if nth == 0 { "" } else { "; " };
            write!(f, "{between}for the parameters of worker `{worker}`: {error}")?;
        }
        Ok(())
    }
}
