//! Function pointers and capturing closures: calls of them do not compile.

/// Compares the compiler's output for each file of `ui` with the text next to it. The errors appear only when code is
/// generated, which trybuild does if at least one case passes. After an intended change, run with `TRYBUILD=overwrite` and
/// review the difference.
#[test]
fn function_pointers_and_capturing_closures_cannot_be_called() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/not_functions/function.rs");
    cases.compile_fail("tests/not_functions/ui/*.rs");
}
