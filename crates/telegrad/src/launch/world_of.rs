//! A program that starts itself once per worker.

use std::io::Write;

use super::{Launch, LaunchError};

/// Starts this program once per name, and returns the name of the current process.
///
/// A process that is part of a world (`RANK` is set) returns its name. Otherwise the call starts the same program with the
/// same arguments once per name, waits for the world to end, and exits the process without returning. Call it first in
/// `main`.
///
/// ```no_run
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let name = telegrad::launch::world_of(&["master", "worker"])?;
///     // Two processes run from here on.
///     println!("I am {name}");
///     Ok(())
/// }
/// ```
///
/// The same program can be started by `telegrad run --names master,worker`, or by hand on several
/// hosts with `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` set; without `TELEGRAD_NAME` the
/// rank is the position in `names`.
///
/// # Errors
/// When this process was started as part of another world. If the call starts the world, it prints errors and exits with
/// [`LaunchError::exit_code`].
pub fn world_of(names: &[impl AsRef<str>]) -> Result<String, LaunchError> {
    let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
    let variable = |key: &str| std::env::var(key).ok();
    if let Some(rank) = variable("RANK") {
        return name_of_this_process(&names, &rank, variable("WORLD_SIZE"), variable("TELEGRAD_NAME"));
    }
    let code = match Launch::this_program(names).and_then(Launch::run) {
        Ok(()) => 0,
        Err(error) => {
            // A closed standard error cannot be reported.
            let _ = writeln!(std::io::stderr(), "telegrad: {error}");
            error.exit_code()
        }
    };
    std::process::exit(code.into())
}

fn name_of_this_process(
    names: &[String],
    rank: &str,
    world_size: Option<String>,
    name: Option<String>,
) -> Result<String, LaunchError> {
    let list = names.join(",");
    let other = |found: String| {
        Err(LaunchError::OtherWorld(format!(
            "this program is a world of {} workers ({list}), but {found}; start it by itself, or with \
             `telegrad run --names {list}`",
            names.len(),
        )))
    };
    if let Some(size) = world_size.filter(|size| *size != names.len().to_string()) {
        return other(format!("WORLD_SIZE is {size}"));
    }
    match name {
        Some(name) if names.contains(&name) => Ok(name),
        Some(name) => other(format!("TELEGRAD_NAME is `{name}`")),
        None => match rank.parse::<usize>().ok().and_then(|rank| names.get(rank)) {
            Some(name) => Ok(name.clone()),
            None => other(format!("RANK is `{rank}`")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(rank: &str, size: Option<&str>, name: Option<&str>) -> Result<String, String> {
        let names = ["master".to_string(), "worker".to_string()];
        name_of_this_process(&names, rank, size.map(Into::into), name.map(Into::into))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_name_is_the_given_one_or_that_of_the_rank() {
        assert_eq!(who("1", Some("2"), Some("master")).unwrap(), "master");
        assert_eq!(who("1", Some("2"), None).unwrap(), "worker");
        assert_eq!(who("0", None, None).unwrap(), "master");
    }

    #[test]
    fn another_world_is_an_error_that_says_what_to_do() {
        assert_eq!(
            who("0", Some("3"), None).unwrap_err(),
            "this program is a world of 2 workers (master,worker), but WORLD_SIZE is 3; start it by itself, \
             or with `telegrad run --names master,worker`"
        );
        assert!(
            who("0", Some("2"), Some("worker0"))
                .unwrap_err()
                .contains("TELEGRAD_NAME is `worker0`")
        );
        assert!(who("2", None, None).unwrap_err().contains("RANK is `2`"));
        assert!(who("x", None, None).unwrap_err().contains("RANK is `x`"));
    }
}
