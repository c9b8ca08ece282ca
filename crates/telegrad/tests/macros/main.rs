//! What the macros accept (`functions`, `wire`), and what they say about the rest (`ui`).

mod functions;
mod wire;

/// Each file of `ui` next to what the compiler says about it. After a change that is meant, run with
/// `TRYBUILD=overwrite` and read the difference.
#[test]
fn what_is_wrong_is_said() {
    trybuild::TestCases::new().compile_fail("tests/macros/ui/*.rs");
}
