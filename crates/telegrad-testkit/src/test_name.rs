//! The name of the running test.

/// The name of the test on this thread. `body` is the type of the test's body.
pub(crate) fn of(body: &str) -> String {
    match std::thread::current().name() {
        // The harness names each test's thread after it, unless tests run one at a time.
        Some(name) if name != "main" => return name.into(),
        _ => {}
    }
    let arguments: Vec<_> = std::env::args().collect();
    exact(&arguments).unwrap_or_else(|| of_type(body))
}

/// The name of the only test that the harness's arguments select.
fn exact(arguments: &[String]) -> Option<String> {
    let mut names = arguments
        .iter()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    match (
        arguments.iter().any(|argument| argument == "--exact"),
        names.next(),
        names.next(),
    ) {
        (true, Some(name), None) => Some(name.clone()),
        _ => None,
    }
}

/// The path of the function that contains a closure, without the crate.
fn of_type(name: &str) -> String {
    let function = name.split("::{{closure}}").next().unwrap_or(name);
    function
        .split_once("::")
        .map_or(function, |(_, path)| path)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<String> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn the_path_of_a_closure_names_its_test() {
        let name = std::any::type_name_of_val(&|| ());
        assert_eq!(
            of_type(name),
            "test_name::tests::the_path_of_a_closure_names_its_test"
        );
    }

    #[test]
    fn a_single_exact_argument_names_the_test() {
        assert_eq!(
            exact(&arguments("bin --exact a::b --nocapture")).as_deref(),
            Some("a::b")
        );
        assert_eq!(exact(&arguments("bin a::b --exact")).as_deref(), Some("a::b"));
        assert_eq!(
            exact(&arguments("bin a::b --nocapture")),
            None,
            "a filter matches many"
        );
        assert_eq!(exact(&arguments("bin --exact a b")), None);
    }

    #[test]
    fn the_harness_thread_names_the_test() {
        let here = std::thread::Builder::new().name("a::test".into());
        let name = here
            .spawn(|| of("crate::other::{{closure}}"))
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(name, "a::test");
    }
}
