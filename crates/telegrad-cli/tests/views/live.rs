//! A world looked at while it runs: `telegrad top` in a terminal, and `run --dashboard`.

use std::process::Command;

use serde_json::Value;

use super::*;

#[test]
fn the_dashboard_shows_workers_rates_and_metrics() {
    let mut running = Running::start(&["--dashboard"]);
    let address = running.dashboard();
    assert!(
        address.starts_with("127.0.0.1:"),
        "on this machine only: {address}"
    );
    let (head, page) = get(&address, "/");
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'";
    assert!(head.contains(policy) && page.contains(policy), "{head}");
    assert!(page.contains("<title>Telegrad dashboard</title>") && page.contains("status.json"));
    assert_needs_no_network(&page);

    let status = until(|| {
        let status: Value = serde_json::from_str(&get(&address, "/status.json").1).unwrap();
        let has_latency = status["world"][0]["latency"][0]["p50"].as_f64().is_some();
        // Both have made or served something, and both have answered in time.
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

    let (_, metrics) = get(&address, "/metrics");
    for shown in [
        "# TYPE telegrad_calls_made_total counter",
        "telegrad_calls_made_total{worker=\"client\"} ",
        "telegrad_queued{worker=\"server\"} ",
        "telegrad_call_seconds_bucket{worker=\"client\",callee=\"1\",le=\"+Inf\"} ",
        "telegrad_call_seconds_sum{worker=\"client\",callee=\"1\"} ",
    ] {
        assert!(metrics.contains(shown), "no {shown} in\n{metrics}");
    }
}

#[test]
fn top_shows_a_world_in_a_terminal_until_q_is_pressed() {
    if Command::new("tmux").arg("-V").output().is_err() {
        // There is no terminal to look at; `.ci/run` installs tmux.
        return;
    }
    let running = Running::start(&[]);
    let session = format!("telegrad-top-{}", running.process());
    let tmux = |args: &[&str]| {
        let mut command = Command::new("tmux");
        let output = command.args(["-L", &session]).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Until there is a world to look at, it says so and ends.
    let top = format!(
        "while ! {} top {} --interval 0.2; do sleep 0.1; done; echo it has ended; sleep 60",
        PROGRAM,
        running.process()
    );
    tmux(&["new-session", "-d", "-s", "top", "-x", "140", "-y", "30", &top]);
    let screen = until(|| {
        let screen = tmux(&["capture-pane", "-p", "-t", "top"]);
        let shown = [
            "telegrad top: 2 of 2 workers",
            "client",
            "server",
            "made/s",
            "calls/s",
            "who waits for whom",
        ];
        let has_calls = screen.lines().any(|line| line.contains("client → server"));
        if shown.iter().all(|shown| screen.contains(shown)) && has_calls {
            Ok(screen)
        } else {
            Err(screen)
        }
    });
    assert!(screen.contains("µs") || screen.contains("ms"), "{screen}");
    tmux(&["send-keys", "-t", "top", "q"]);
    until(|| {
        let screen = tmux(&["capture-pane", "-p", "-t", "top"]);
        if screen.contains("it has ended") {
            Ok(())
        } else {
            Err(screen)
        }
    });
    tmux(&["kill-server"]);
}

#[test]
fn without_a_world_there_is_nothing_to_see() {
    for (command, said) in [
        ("top", "has no worker that can be seen"),
        ("doctor", "has no worker that can be seen"),
    ] {
        let output = Command::new(PROGRAM).args([command, "1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said), "{errors}");
    }
}
