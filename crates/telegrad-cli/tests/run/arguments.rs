//! Invalid arguments, and help, completions and manual, which are generated from the arguments.

use crate::launcher::{Launcher, telegrad};

#[test]
fn invalid_arguments_are_explained() {
    let long = "x".repeat(128);
    for (args, text) in [
        (
            vec!["run", "-n", "2", "--names", "a", "sh"],
            "-n 2 does not match the 1 names of --names: a",
        ),
        (
            vec!["run", "--names", "a,b,a", "sh"],
            "worker name `a` is used twice, for ranks 0 and 2",
        ),
        (vec!["run", "--names", "a,,b", "sh"], "worker name `` is empty"),
        (
            vec!["run", "--names", "a b", "sh"],
            "worker name `a b` contains ' '",
        ),
        (
            vec!["run", "--names", &long, "sh"],
            "has 128 characters, at most 127 are allowed",
        ),
        (vec!["run", "-n", "0", "sh"], "0 is not in 1..=4096"),
        (
            vec!["run", "-n", "two", "sh"],
            "invalid value 'two' for '--workers <N>'",
        ),
        (
            vec!["run", "-n", "1", "--grace=-1", "sh"],
            "invalid value '-1' for '--grace <SECONDS>'",
        ),
        (
            vec!["run", "-n", "1", "--grace", "soon", "sh"],
            "it must be a number of seconds",
        ),
        (vec!["run", "sh"], "<--workers <N>|--names <NAME,…>>"),
        (vec!["run", "-n", "1"], "<PROGRAM>"),
        (
            vec!["run", "--wokers", "1", "sh"],
            "unexpected argument '--wokers'",
        ),
        (vec!["ran"], "unrecognized subcommand 'ran'"),
        (vec!["man", "ran"], "there is no subcommand `ran`"),
        (vec!["completions", "teletype"], "invalid value 'teletype'"),
    ] {
        let outcome = Launcher::start(telegrad(&args)).wait();
        let stderr = outcome.stderr.join("\n");
        assert!(stderr.contains(text), "{args:?} gives: {stderr}");
        assert_eq!(outcome.code, Some(2), "{args:?}");
        assert_eq!(outcome.stdout, [""; 0], "{args:?}");
    }
}

#[test]
fn options_after_the_program_go_to_the_program() {
    let command = telegrad(["run", "-n", "1", "echo", "x", "-n", "2", "--", "--help"]);
    let outcome = Launcher::start(command).wait();
    assert_eq!(outcome.stdout, ["worker0 | x -n 2 -- --help"]);
}

#[test]
fn help_completions_and_manual_list_every_option() {
    for args in [
        vec!["run", "--help"],
        vec!["completions", "bash"],
        vec!["completions", "zsh"],
        vec!["completions", "fish"],
        vec!["man", "run"],
    ] {
        let outcome = Launcher::start(telegrad(&args)).wait();
        let text = outcome.stdout.join("\n").replace('\\', "");
        for option in ["workers", "names", "grace"] {
            assert!(
                text.contains(option),
                "`telegrad {}` does not mention {option}",
                args.join(" ")
            );
        }
        assert_eq!(outcome.code, Some(0));
    }
}

#[test]
fn the_manual_lists_all_subcommands() {
    let text = Launcher::start(telegrad(["man"]))
        .wait()
        .stdout
        .join("\n")
        .replace('\\', "");
    for command in ["telegrad-run", "telegrad-completions", "telegrad-man"] {
        assert!(text.contains(command), "{command} is missing in: {text}");
    }
}
