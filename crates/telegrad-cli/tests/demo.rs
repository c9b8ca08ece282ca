//! `telegrad demo split-learning` on the command line.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the demo in a folder.
fn demo(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_telegrad"))
        .args(["demo", "split-learning"])
        .args(args)
        .current_dir(folder)
        .output()
        .expect("the command starts")
}

/// Parses the JSON lines of a successful run.
fn lines(output: &Output) -> Vec<Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let out = String::from_utf8_lossy(&output.stdout);
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn losses(lines: &[Value]) -> Vec<f64> {
    lines.iter().filter_map(|line| line["loss"].as_f64()).collect()
}

#[test]
fn the_demo_recognises_digits_and_draws_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &["--json", "--seed", "1", "--epochs", "12"]);
    let lines = lines(&output);
    assert_eq!(lines.len(), 13);
    let last = &lines[12];
    // The full run of 30 epochs reaches 0.98.
    assert!(last["test_accuracy"].as_f64().unwrap() > 0.95, "{last}");
    assert_eq!(last["steps"], 12 * 45);
    let losses = losses(&lines);
    assert!(losses[11] < 0.2 * losses[0], "{losses:?}");
    assert!(lines[0]["bytes_per_step"].as_f64().unwrap() > 1000.0);
    let plot = std::fs::read_to_string(folder.path().join("split-learning.svg")).unwrap();
    assert!(
        plot.starts_with("<svg") && plot.contains("training loss"),
        "{plot}"
    );
}

#[test]
fn the_same_seed_gives_the_same_losses_for_every_placement() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let args = [&["--json", "--epochs", "2", "--batch", "64"], args].concat();
        losses(&lines(&demo(folder.path(), &args)))
    };
    let first = run(&["--seed", "7"]);
    assert_eq!(first.len(), 2);
    assert_eq!(run(&["--seed", "7"]), first);
    assert_eq!(run(&["--seed", "7", "--processes", "1"]), first);
    assert_eq!(run(&["--seed", "7", "--processes", "4"]), first);
    assert_eq!(run(&["--seed", "7", "--label-side", "client"]), first);
    assert_ne!(run(&["--seed", "8"]), first);
}

#[test]
fn every_optimiser_learns() {
    let folder = tempfile::tempdir().unwrap();
    for optimizer in [
        "sgd", "adam", "adamw", "adagrad", "adadelta", "rmsprop", "rprop", "adamax",
    ] {
        let args = [
            "--json",
            "--epochs",
            "2",
            "--processes",
            "1",
            "--optimizer",
            optimizer,
        ];
        let losses = losses(&lines(&demo(folder.path(), &args)));
        assert!(losses[1] < losses[0], "{optimizer}: {losses:?}");
    }
}

#[test]
fn output_without_a_terminal_is_plain_lines() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &["--epochs", "1", "--plot", "here.svg"]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.starts_with("epoch   1/1  loss "), "{out}");
    assert!(out.contains("\ntest accuracy "), "{out}");
    assert!(out.ends_with("losses and accuracies are in here.svg\n"), "{out}");
    assert!(folder.path().join("here.svg").is_file());
}

#[test]
fn invalid_values_are_refused_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (args, text) in [
        (["--epochs", "0"], "it must be 1 or more"),
        (["--batch", "many"], "it must be a whole number, 1 or more"),
        (["--lr", "-0.1"], "a learning rate is a positive number"),
        (["--lr", "nan"], "a learning rate is a positive number"),
        (["--processes", "5"], "5 is not in 1..=4"),
        (["--label-side", "neither"], "[possible values: client, server]"),
        (["--optimizer", "lion"], "[possible values: sgd, adam, adamw,"),
        (["--batch", "5000"], "larger than the 1437 images"),
        (
            ["--plot", "no/such/folder.svg"],
            "cannot write `no/such/folder.svg`",
        ),
    ] {
        let output = demo(folder.path(), &args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        assert!(errors.contains(text), "{args:?}: {errors}");
    }
}
