//! Names of workers.

use std::collections::HashMap;

use super::LaunchError;
use crate::WorkerInfo;

/// `worker0` to `worker{n-1}`.
#[must_use]
pub fn default_names(n: usize) -> Vec<String> {
    (0..n).map(|rank| format!("worker{rank}")).collect()
}

/// Validates the names of a world before any process starts.
pub(super) fn check(names: &[String]) -> Result<(), LaunchError> {
    if names.is_empty() {
        return Err(LaunchError::NoWorkers);
    }
    let mut ranks = HashMap::new();
    for (rank, name) in names.iter().enumerate() {
        if let Some(problem) = WorkerInfo::name_problem(name) {
            return Err(LaunchError::BadName {
                name: name.clone(),
                problem,
            });
        }
        if let Some(first) = ranks.insert(name, rank) {
            return Err(LaunchError::DuplicateName {
                name: name.clone(),
                first,
                second: rank,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(names: &[&str]) -> String {
        check(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn valid_names_pass() {
        check(&default_names(3)).unwrap();
        check(&["Az09_:-".to_string(), "x".repeat(127)]).unwrap();
    }

    #[test]
    fn invalid_names_are_rejected() {
        assert_eq!(error(&[]), "a world needs at least one worker");
        assert_eq!(error(&["a", ""]), "worker name `` is empty");
        assert_eq!(
            error(&["a b"]),
            "worker name `a b` contains ' ': a name is made of letters, digits, `_`, `:` and `-`"
        );
        assert!(error(&["é"]).contains("contains 'é'"));
        assert!(error(&[&"x".repeat(128)]).ends_with("has 128 characters, at most 127 are allowed"));
        assert_eq!(
            error(&["a", "b", "a"]),
            "worker name `a` is used twice, for ranks 0 and 2"
        );
    }
}
