//! The commands that show worlds: recordings, and running worlds.

mod browser;
mod doctor;
mod live;
mod outputs;
mod perfetto;
mod recording;
mod scripts;
mod survivors;
mod trace;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_telegrad");

/// Longer than any wait takes on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(40);

/// The command with these arguments, in a folder.
fn telegrad(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).current_dir(folder);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; returns its standard output.
#[track_caller]
fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Records a short training run, of a client and a server.
fn record(folder: &Path, file: &str) -> Output {
    let demo = [
        "demo",
        "split-learning",
        "--epochs",
        "1",
        "--batch",
        "400",
        "--json",
    ];
    let record = ["trace", "record", "-o", file, "--", PROGRAM];
    let output = telegrad(folder, &[&record, &demo[..]].concat())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// Repeats a check until it succeeds; panics with its last error at the time limit.
fn until<T>(mut check: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        match check() {
            Ok(found) => return found,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Sends a GET request with this `Host`; returns the whole response.
fn answer(address: &str, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends a GET request that must succeed; returns head and body.
fn get(address: &str, path: &str) -> (String, String) {
    let answer = answer(address, address, path);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// Checks that a page is self-contained.
fn assert_needs_no_network(page: &str) {
    for fetched in ["https://", "src=\"", "href=\"http", "@import"] {
        assert!(!page.contains(fetched), "the page has {fetched}");
    }
}

/// A training run of a client and a server under `telegrad run`; killed on drop.
struct Running {
    run: Child,
    errors: BufReader<ChildStderr>,
    folder: tempfile::TempDir,
}

impl Running {
    fn start(more: &[&str]) -> Self {
        let demo = [PROGRAM, "demo", "split-learning", "--epochs", "100000"];
        Self::program(more, &demo)
    }

    /// Runs a program once: the demo starts its second process itself.
    fn program(more: &[&str], program: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let once = ["-n", "1", "--"];
        let mut run = telegrad(folder.path(), &[&["run"], more, &once[..], program].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = BufReader::new(run.stderr.take().unwrap());
        Self { run, errors, folder }
    }

    fn process(&self) -> String {
        self.run.id().to_string()
    }

    fn dashboard(&mut self) -> String {
        dashboard_of(&mut self.errors)
    }
}

/// Reads the address of the dashboard from the first line of a launcher.
fn dashboard_of(errors: &mut BufReader<ChildStderr>) -> String {
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    address.unwrap_or_else(|| panic!("{line}")).to_owned()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process()).status();
        let _ = self.run.wait();
    }
}
