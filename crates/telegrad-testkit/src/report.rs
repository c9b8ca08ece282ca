//! The report of a failed cluster.

use std::any::Any;
use std::time::Duration;

/// A failed member.
pub(crate) struct Failure {
    pub(crate) rank: u32,
    pub(crate) how: String,
}

/// The text of a failing test's panic.
pub(crate) fn text(
    names: &[String],
    failures: &[Failure],
    unfinished: &[u32],
    limit: Option<Duration>,
    outputs: &[String],
) -> String {
    let member = |rank: u32| format!("worker `{}` (rank {rank})", names[rank as usize]);
    let mut text = String::new();
    for Failure { rank, how } in failures {
        text += &format!("{} {how}\n", member(*rank));
    }
    if let Some(limit) = limit {
        let members: Vec<_> = unfinished.iter().map(|&rank| member(rank)).collect();
        text += &format!("not finished within {limit:?}: {}\n", members.join(", "));
    }
    for (name, output) in names.iter().zip(outputs) {
        if !output.is_empty() {
            text += &format!("--- output of `{name}`\n{output}");
        }
    }
    text
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
