//! What can be called like a function but is none: calls of it do not compile.

/// Each file of `ui` next to what the compiler says about it. It says so only when it generates code, which trybuild has
/// it do if something passes. After a change that is meant, run with `TRYBUILD=overwrite` and read the difference.
#[test]
fn function_pointers_and_capturing_closures_cannot_be_called() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/not_functions/function.rs");
    cases.compile_fail("tests/not_functions/ui/*.rs");
}
