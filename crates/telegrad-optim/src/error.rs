//! What can go wrong with an optimiser.

use std::path::PathBuf;

use candle_core::{DType, Shape};
use telegrad_rpc::Error;
use thiserror::Error;

/// Why an optimiser could not be made, make a step, or be saved or loaded.
///
/// Functions of this crate return it inside of [`telegrad_rpc::Error`], where [`OptimError::of`] finds it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OptimError {
    /// An option with a value that makes no sense.
    #[error("{of}: `{option}` is {value}, but {must}")]
    Option {
        /// The algorithm or schedule.
        of: &'static str,
        /// The option.
        option: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// Options that do not go with each other.
    #[error("{of}: {why}")]
    Options {
        /// The algorithm or schedule.
        of: &'static str,
        /// What does not fit.
        why: &'static str,
    },
    /// There is nothing to optimise.
    #[error("an optimiser needs at least one parameter")]
    NoParameters,
    /// A parameter that is given twice.
    #[error("{parameter} was given before: every parameter belongs to one group, once")]
    Duplicate {
        /// Which one.
        parameter: String,
    },
    /// A parameter whose elements are no floating-point numbers of 16, 32 or 64 bits.
    #[error("{parameter} has elements of type {dtype:?}, which cannot be optimised")]
    ParameterDType {
        /// Which one.
        parameter: String,
        /// Its element type.
        dtype: DType,
    },
    /// A group that does not exist.
    #[error("there is no group {group} in an optimiser with {groups}")]
    NoGroup {
        /// The group asked for.
        group: usize,
        /// How many there are.
        groups: usize,
    },
    /// A gradient of another shape than its parameter.
    #[error("{parameter} has shape {expected:?}, its gradient {found:?}")]
    GradientShape {
        /// Which parameter.
        parameter: String,
        /// Its shape.
        expected: Shape,
        /// The gradient's.
        found: Shape,
    },
    /// A gradient of another element type than its parameter.
    #[error("{parameter} has elements of type {expected:?}, its gradient {found:?}")]
    GradientDType {
        /// Which parameter.
        parameter: String,
        /// Its element type.
        expected: DType,
        /// The gradient's.
        found: DType,
    },
    /// A gradient whose elements are no floating-point numbers of 16, 32 or 64 bits.
    #[error("there is no norm of a gradient with elements of type {dtype:?}")]
    NormDType {
        /// Its element type.
        dtype: DType,
    },
    /// A step by gradients of which none belongs to a parameter of the optimiser.
    #[error(
        "none of the {count} parameters of the optimiser has a gradient: the loss uses none of them, or an operation without a \
         backward pass lies in between"
    )]
    NoGradients {
        /// How many parameters the optimiser has.
        count: usize,
    },
    /// Gradients were to be scaled by something that is no number.
    #[error("gradients cannot be scaled by {0}")]
    Scale(f64),
    /// Something failed on the owners of parameters; on the others it was done.
    #[error("{}", Owners(.0))]
    Owners(Vec<(String, Error)>),
    /// The norm of the gradients of all owners could not be had from these. Nobody has made a step.
    #[error("the norm of all gradients is not known, and no step was made: {}", Owners(.0))]
    Norm(Vec<(String, Error)>),
    /// Gradients to clip are infinite or not numbers, on these workers. Nobody has made a step.
    #[error(
        "the gradients of the parameters of worker {} are infinite or not numbers: they cannot be clipped, and no step was \
         made", Names(.0)
    )]
    NotFinite(Vec<String>),
    /// Groups of one distributed optimiser with different algorithms.
    #[error("all groups of an optimiser have the same algorithm, not `{0}` and `{1}`")]
    Mixed(&'static str, &'static str),
    /// A file of a world with other owners of parameters.
    #[error("`{}` was saved with parameters on {found}, here they are on {expected}", path.display())]
    OtherOwners {
        /// The file.
        path: PathBuf,
        /// The workers here.
        expected: String,
        /// The workers in the file.
        found: String,
    },
    /// A file that cannot be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file that is no saved optimiser, or no longer a whole one.
    #[error("`{}` is not a saved optimiser: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file of a later version of this crate.
    #[error("`{}` has format {found}, this program reads up to {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The latest known one.
        known: u64,
    },
    /// A file of another algorithm.
    #[error("`{}` holds the state of `{found}`, this optimiser is `{expected}`", path.display())]
    OtherAlgorithm {
        /// The file.
        path: PathBuf,
        /// The algorithm here.
        expected: &'static str,
        /// The algorithm in the file.
        found: String,
    },
    /// A file of other parameters.
    #[error("`{}` is of other parameters: {what} is {expected} here and {found} in the file", path.display())]
    OtherParameters {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
        /// How it is here.
        expected: String,
        /// How it is in the file.
        found: String,
    },
    /// A file without the parameters' values, which were asked for.
    #[error("`{}` holds no values of parameters: it was saved without them", path.display())]
    NoValues {
        /// The file.
        path: PathBuf,
    },
}

impl OptimError {
    /// The optimiser's error inside of this one, if it is one.
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Other(inner) => inner.downcast_ref(),
            _ => None,
        }
    }
}

/// What went wrong where.
struct Owners<'a>(&'a [(String, Error)]);

impl std::fmt::Display for Owners<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (nth, (worker, error)) in self.0.iter().enumerate() {
            let between = if nth == 0 { "" } else { "; " };
            write!(f, "{between}for the parameters of worker `{worker}`: {error}")?;
        }
        Ok(())
    }
}

/// Names of workers.
struct Names<'a>(&'a [String]);

impl std::fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (nth, worker) in self.0.iter().enumerate() {
            let between = if nth == 0 { "" } else { ", " };
            write!(f, "{between}`{worker}`")?;
        }
        Ok(())
    }
}

impl From<OptimError> for Error {
    fn from(error: OptimError) -> Self {
        Self::other(error)
    }
}
