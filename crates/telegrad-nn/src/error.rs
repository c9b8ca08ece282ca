//! Errors that many layers return.

use std::path::Path;

use candle_core::Shape;
use telegrad_error::{Error, NnError};

/// A tensor, or another input, that a layer does not take.
pub(crate) fn wrong_input(
    layer: &'static str,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    let (expected, found) = (expected.into(), found.into());
    NnError::Input {
        layer,
        expected,
        found,
    }
    .into()
}

/// A tensor of a shape that a layer does not take.
pub(crate) fn wrong_shape(layer: &'static str, expected: impl Into<String>, found: &Shape) -> Error {
    wrong_input(layer, expected, format!("one of shape {:?}", found.dims()))
}

/// Sizes or options that a layer cannot have.
pub(crate) fn wrong_options(layer: &'static str, why: impl Into<String>) -> Error {
    let why = why.into();
    NnError::Options { layer, why }.into()
}

/// An error about values, with the file that they came from.
pub(crate) fn in_file(source: Error, path: &Path) -> Error {
    NnError::Load {
        path: path.display().to_string(),
        source: Box::new(source),
    }
    .into()
}
