//! The scripts that work without a page: reading of data, and layout.
//!
//! Skipped without Node, unless the variable `TELEGRAD_NODE` names the program; `.ci/run` sets it.

use std::io::Write;
use std::process::{Command, Stdio};

use super::text;

/// Runs a test script after these scripts of a page.
#[track_caller]
fn check(parts: &[&str], test: &str) {
    let configured = std::env::var_os("TELEGRAD_NODE");
    let is_required = configured.is_some();
    let node = Command::new(configured.unwrap_or_else(|| "node".into()))
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut node = match node {
        Err(error) => {
            assert!(!is_required, "cannot start Node: {error}");
            return;
        }
        Ok(node) => node,
    };
    let script = [&["\"use strict\";"], parts, &[test]].concat().join("\n");
    // Node runs the script at the end of its input.
    node.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// The scripts of the trace view that work without a page, in order.
const RECORDING: [&str; 6] = [
    include_str!("../../src/page/numbers.js"),
    include_str!("../../src/trace/view/format.js"),
    include_str!("../../src/trace/view/data.js"),
    include_str!("../../src/trace/view/lanes.js"),
    include_str!("../../src/trace/view/density.js"),
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
fn lanes_are_laid_out_by_depth_and_chosen_by_space() {
    check(&RECORDING, include_str!("scripts/lanes.js"));
}

#[test]
fn density_is_the_number_of_concurrent_events() {
    check(&RECORDING, include_str!("scripts/density.js"));
}

#[test]
fn an_axis_has_round_numbers_with_space_between_them() {
    check(&RECORDING, include_str!("scripts/axis.js"));
}
