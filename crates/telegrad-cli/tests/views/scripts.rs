//! The parts of pages that need no page: what they make of the data, and where everything goes.
//!
//! Node is needed; where there is none, these tests have nothing to say. `.ci/run` installs it. The variable `TELEGRAD_NODE` says
//! which program it is, and that there must be one.

use std::io::Write;
use std::process::{Command, Stdio};

use super::text;

/// These parts of a page, as they are put together, and a test of them.
#[track_caller]
fn check(parts: &[&str], test: &str) {
    let told = std::env::var_os("TELEGRAD_NODE");
    let is_needed = told.is_some();
    let node = Command::new(told.unwrap_or_else(|| "node".into()))
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut node = match node {
        Err(error) => {
            assert!(!is_needed, "there is no Node: {error}");
            return;
        }
        Ok(node) => node,
    };
    let script = [&["\"use strict\";"], parts, &[test]].concat().join("\n");
    // It reads all of it before it does anything, and its input ends here.
    node.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// What the page of a recording has before it touches anything, in its order.
const RECORDING: [&str; 6] = [
    include_str!("../../src/page/numbers.js"),
    include_str!("../../src/trace/view/words.js"),
    include_str!("../../src/trace/view/data.js"),
    include_str!("../../src/trace/view/lanes.js"),
    include_str!("../../src/trace/view/crowds.js"),
    include_str!("../../src/trace/view/axis.js"),
];

#[test]
fn numbers_are_short_and_have_units() {
    check(&RECORDING[..2], include_str!("scripts/numbers.js"));
}

#[test]
fn a_recording_is_read_from_its_columns() {
    check(&RECORDING, include_str!("scripts/data.js"));
}

#[test]
fn lanes_are_laid_by_depth_and_chosen_by_room() {
    check(&RECORDING, include_str!("scripts/lanes.js"));
}

#[test]
fn crowds_are_as_high_as_there_are_events_at_once() {
    check(&RECORDING, include_str!("scripts/crowds.js"));
}

#[test]
fn an_axis_has_round_numbers_with_room_between_them() {
    check(&RECORDING, include_str!("scripts/axis.js"));
}
