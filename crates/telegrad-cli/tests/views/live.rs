//! Running worlds: `telegrad top` in a terminal, and `run --dashboard`.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::*;

#[test]
fn the_dashboard_shows_workers_rates_and_metrics() {
    let mut running = Running::start(&["--dashboard"]);
    let address = running.dashboard();
    assert!(
        address.starts_with("127.0.0.1:"),
        "not a loopback address: {address}"
    );
    let (head, page) = get(&address, "/");
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'";
    assert!(head.contains(policy) && page.contains(policy), "{head}");
    assert!(page.contains("<title>Telegrad dashboard</title>") && page.contains("status.json"));
    assert_needs_no_network(&page);

    let status = until(|| {
        let status: Value = serde_json::from_str(&get(&address, "/status.json").1).unwrap();
        let has_latency = status["world"][0]["latency"][0]["counts"][0][1].as_u64() > Some(0);
        // Both have calls, and both have answered in time.
        let has_both = status["world"][1]["counters"]["calls_served"].as_u64() > Some(0);
        if has_latency && has_both {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    });
    let workers = status["world"].as_array().unwrap();
    assert_eq!(workers.len(), 2, "{status}");
    assert_eq!(
        (&workers[0]["name"], &workers[1]["name"]),
        (&"client".into(), &"server".into())
    );
    assert!(workers[0]["counters"]["calls_made"].as_u64().unwrap() > 0);
    assert!(workers[1]["counters"]["calls_served"].as_u64().unwrap() > 0);
    assert_eq!(
        (&status["silent"], &status["cycles"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );

    assert!(status["id"].as_str().is_some_and(|id| !id.is_empty()), "{status}");

    let (head, metrics) = get(&address, "/metrics");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let world = format!("telegrad_world_info{{world={}}} 1", status["id"]);
    for shown in [
        &world,
        "# TYPE telegrad_calls_made_total counter",
        "telegrad_calls_made_total{worker=\"client\"} ",
        "telegrad_queued{worker=\"server\"} ",
        "telegrad_call_seconds_bucket{worker=\"client\",le=\"+Inf\"} ",
        "# TYPE telegrad_calls_to_seconds summary",
        "telegrad_calls_to_seconds_sum{worker=\"client\",callee=\"server\"} ",
    ] {
        assert!(metrics.contains(shown), "no {shown} in\n{metrics}");
    }
    assert_valid_metrics(&metrics);
}

/// The server of the demo is in shutdown from the start.
#[test]
fn the_dashboard_does_not_show_calls_of_a_shutdown() {
    let mut running = Running::start(&["--dashboard"]);
    let address = running.dashboard();
    until(|| {
        let report = text(&super::doctor::doctor(&[&running.process()]).stdout);
        let is_leaving = report.contains("1 of 2 workers are in shutdown and wait for the others: `server`");
        if is_leaving { Ok(()) } else { Err(report) }
    });
    let status: Value = serde_json::from_str(&get(&address, "/status.json").1).unwrap();
    let calls = status["calls"].as_array().unwrap().iter();
    let functions = calls.map(|call| call["function"].as_str().unwrap());
    let of_shutdown: Vec<_> = functions
        .filter(|name| telegrad::status::is_shutdown(name))
        .collect();
    assert_eq!(of_shutdown, [""; 0], "{status}");
}

/// Checks that every line is a comment or a sample, and that the type of each sample is declared before.
fn assert_valid_metrics(metrics: &str) {
    let mut declared = Vec::new();
    for line in metrics.lines() {
        if let Some(declaration) = line.strip_prefix("# TYPE ") {
            declared.extend(declaration.split(' ').next());
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = series.split_once('{').unwrap_or_else(|| panic!("{line}"));
        assert!(labels.ends_with("\"}") && labels.contains("=\""), "{line}");
        let is_part = |whole: &&str| {
            let rest = name.strip_prefix(*whole);
            rest.is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
        };
        assert!(declared.iter().any(is_part), "{line}");
    }
    assert!(metrics.ends_with('\n'));
}

/// DNS rebinding: a foreign page whose name resolves to this machine must not read the dashboard.
#[test]
fn the_dashboard_refuses_foreign_host_names() {
    let mut running = Running::start(&["--dashboard"]);
    let address = running.dashboard();
    for path in ["/", "/status.json", "/metrics"] {
        let refused = answer(&address, "evil.example", path);
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
        assert!(answer(&address, "localhost", path).starts_with("HTTP/1.1 200"));
    }
}

/// A terminal; closed on drop.
pub(crate) struct Terminal(String);

impl Terminal {
    /// Starts a terminal that runs a command; `None` without tmux, which `TELEGRAD_TMUX` requires.
    pub(crate) fn run(name: &str, command: &str) -> Option<Self> {
        Self::of_size(name, command, ("140", "30"))
    }

    fn of_size(name: &str, command: &str, (width, height): (&str, &str)) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(
                std::env::var_os("TELEGRAD_TMUX").is_none(),
                "tmux is not installed"
            );
            return None;
        }
        let terminal = Self(format!("telegrad-{name}-{}", std::process::id()));
        terminal.tmux(&[
            "new-session",
            "-d",
            "-s",
            "it",
            "-x",
            width,
            "-y",
            height,
            command,
        ]);
        Some(terminal)
    }

    pub(crate) fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output = command.args(["-L", &self.0]).args(args).output().unwrap();
        text(&output.stdout)
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "it"])
    }

    /// Waits until all of these texts are on the screen; returns the screen.
    pub(crate) fn shows(&self, expected: &[&str]) -> String {
        until(|| {
            let screen = self.screen();
            let missing = expected.iter().find(|shown| !screen.contains(**shown));
            missing.map_or_else(
                || Ok(screen.clone()),
                |shown| Err(format!("no {shown} in\n{screen}")),
            )
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// A command that runs `top` until it finds the world.
fn top_of(running: &Running) -> String {
    format!(
        "for i in $(seq 600); do {PROGRAM} top {} --interval 0.2 && break; sleep 0.1; done; echo it has ended; sleep 60",
        running.process()
    )
}

#[test]
fn top_shows_a_world_until_q_is_pressed() {
    let running = Running::start(&[]);
    let Some(terminal) = Terminal::run("top", &top_of(&running)) else {
        return;
    };
    let screen = terminal.shows(&[
        "telegrad top: 2 of 2 workers",
        "client",
        "server",
        "made/s",
        "calls/s",
        "client → server",
        "wait chains",
        // A sparkline.
        "█",
    ]);
    assert!(screen.contains("µs") || screen.contains("ms"), "{screen}");
    terminal.tmux(&["send-keys", "-t", "it", "q"]);
    terminal.shows(&["it has ended"]);
}

#[test]
fn top_fits_a_terminal_of_the_usual_size() {
    let running = Running::start(&[]);
    let Some(terminal) = Terminal::of_size("narrow", &top_of(&running), ("80", "24")) else {
        return;
    };
    terminal.shows(&[
        "2 of 2 workers",
        "client ",
        "server ",
        "made/s ",
        "p99 ",
        "out B/s",
        "wait chains",
    ]);
}

#[test]
fn top_reports_the_end_of_its_world() {
    let running = Running::start(&[]);
    let Some(terminal) = Terminal::run("end", &top_of(&running)) else {
        return;
    };
    terminal.shows(&["2 of 2 workers"]);
    drop(running);
    let screen = terminal.shows(&["was found"]);
    assert!(screen.contains("server"), "the last snapshot stays: {screen}");
}

#[test]
fn top_stays_with_its_world_when_another_one_appears() {
    let demo = format!("{PROGRAM} demo split-learning --epochs 100000");
    let both = format!("{demo} & while [ ! -e go ]; do sleep 0.05; done; {demo}");
    let running = Running::program(&[], &["sh", "-c", &both]);
    let Some(terminal) = Terminal::run("stays", &top_of(&running)) else {
        return;
    };
    terminal.shows(&["2 of 2 workers"]);
    std::fs::write(running.folder.path().join("go"), "").unwrap();
    until(|| {
        let errors = text(&super::doctor::doctor(&[&running.process()]).stderr);
        let are_two = errors.contains("there are several worlds");
        if are_two { Ok(()) } else { Err(errors) }
    });
    // The screen changes with every snapshot.
    for _ in 0..3 {
        let before = terminal.screen();
        let after = until(|| {
            let screen = terminal.screen();
            if screen == before { Err(screen) } else { Ok(screen) }
        });
        assert!(!after.contains("several worlds"), "{after}");
    }
}

#[test]
fn top_restores_the_terminal_when_a_signal_ends_it() {
    let running = Running::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("process");
    let top = format!(
        "sh -c 'echo $$ > {}; exec {PROGRAM} top {}'",
        file.display(),
        running.process()
    );
    // Retries until the world is found. Waits for a key between runs, so that the next one does not cover the result of the last.
    let top = format!(
        "for time in 1 2 3; do for i in $(seq 600); do {top} && break; sleep 0.1; done; \
         stty -a | grep -q ' echo ' && echo it echoes; read key; clear; done; {top}; sleep 60"
    );
    let Some(terminal) = Terminal::run("ended", &top) else {
        return;
    };
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        terminal.shows(&["telegrad top: 2 of 2 workers"]);
        let process = std::fs::read_to_string(&file).unwrap();
        let process = Pid::from_raw(process.trim().parse().unwrap()).unwrap();
        kill_process(process, signal).unwrap();
        terminal.shows(&["it echoes"]);
        terminal.tmux(&["send-keys", "-t", "it", "Enter"]);
    }

    // Finally, the terminal is closed first.
    terminal.shows(&["telegrad top: 2 of 2 workers"]);
    let process = std::fs::read_to_string(&file).unwrap();
    drop(terminal);
    until(|| {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
        // A zombie counts as ended.
        if state.is_empty() || state.contains(" Z ") {
            Ok(())
        } else {
            Err(format!("it still runs without a terminal: {state}"))
        }
    });
}

#[test]
fn the_dashboard_listens_at_the_given_address() {
    let mut running = Running::start(&["--dashboard", "127.0.0.2:0"]);
    let address = running.dashboard();
    assert!(address.starts_with("127.0.0.2:"), "{address}");
    assert!(get(&address, "/").1.contains("<title>Telegrad dashboard</title>"));
    let mut running = Running::start(&["--dashboard", "localhost:0"]);
    let address = running.dashboard();
    assert!(
        ["127.", "[::1]"].iter().any(|here| address.starts_with(here)),
        "{address}"
    );
    let program = Command::new(PROGRAM)
        .args(["run", "--dashboard", "./program"])
        .output()
        .unwrap();
    let errors = text(&program.stderr);
    assert!(
        !program.status.success() && errors.contains("put `--` before it"),
        "{errors}"
    );
}

#[test]
fn top_and_doctor_fail_without_a_world() {
    for command in ["top", "doctor"] {
        let output = Command::new(PROGRAM).args([command, "1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("no worker of process 1 was found"), "{errors}");
    }
}
