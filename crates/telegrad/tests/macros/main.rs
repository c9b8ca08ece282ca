//! Items that the macros accept (`functions`, `wire`), and errors for all others (`ui`).

mod functions;
mod wire;

/// Compares the compiler's errors for each file of `ui`. After an intended change, run with `TRYBUILD=overwrite` and review the
/// difference.
#[test]
fn errors_are_as_expected() {
    trybuild::TestCases::new().compile_fail("tests/macros/ui/*.rs");
}
