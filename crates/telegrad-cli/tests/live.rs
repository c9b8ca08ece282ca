//! A world looked at while it runs: `telegrad top` in a terminal, and `run --dashboard`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(40);

/// A training run of a client and a server under `telegrad run`, ended when this is dropped.
struct Running {
    run: Child,
    errors: BufReader<ChildStderr>,
    _folder: tempfile::TempDir,
}

impl Running {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_telegrad");
        let demo = [
            "--names",
            "client,server",
            "--",
            program,
            "demo",
            "split-learning",
            "--epochs",
            "100000",
        ];
        let mut run = Command::new(program)
            .arg("run")
            .args(more)
            .args(demo)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = BufReader::new(run.stderr.take().unwrap());
        Self {
            run,
            errors,
            _folder: folder,
        }
    }

    fn process(&self) -> String {
        self.run.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process()).status();
        let _ = self.run.wait();
    }
}

/// Asks until the answer is right.
fn until<T>(mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < end, "{seen}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    body.to_owned()
}

#[test]
fn the_dashboard_shows_workers_rates_and_metrics() {
    let mut running = Running::start(&["--dashboard"]);
    let mut line = String::new();
    running.errors.read_line(&mut line).unwrap();
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    assert!(
        address.starts_with("127.0.0.1:"),
        "on this machine only: {address}"
    );
    let page = get(&address, "/");
    assert!(page.contains("<title>") && page.contains("status.json"));
    for fetched in ["https://", "src=\"", "href=\"http", "@import"] {
        assert!(!page.contains(fetched), "it needs no network, and has {fetched}");
    }

    let status = until(|| {
        let status: Value = serde_json::from_str(&get(&address, "/status.json")).unwrap();
        let has_latency = status["world"][0]["latency"][0]["p50"].as_f64().is_some();
        if has_latency {
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

    let metrics = get(&address, "/metrics");
    for shown in [
        "# TYPE telegrad_calls_made_total counter",
        "telegrad_calls_made_total{worker=\"client\"} ",
        "telegrad_queued{worker=\"server\"} ",
        "telegrad_call_seconds_bucket{worker=\"client\",callee=\"1\",le=\"+Inf\"} ",
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
        env!("CARGO_BIN_EXE_telegrad"),
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
        let output = Command::new(env!("CARGO_BIN_EXE_telegrad"))
            .args([command, "1"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said), "{errors}");
    }
}
