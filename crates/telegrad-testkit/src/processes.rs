//! Clusters whose members are processes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use telegrad_rpc::Transport;

use crate::child::{ChildEnv, REACHED};
use crate::cluster::Cluster;
use crate::member::DONE;
use crate::output::Output;
use crate::report::{self, Failure};

pub(crate) fn run(cluster: &Cluster, test: &str) {
    assert!(
        cluster.transport != Transport::Mem,
        "in-memory links cannot connect processes"
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let ordinal = ordinal(test);
    let (sender, receiver) = channel();
    let mut handles = Vec::new();
    let mut outputs = Vec::new();
    for (rank, name) in cluster.names.iter().enumerate() {
        let rank = rank as u32;
        let env = ChildEnv {
            rank,
            cluster: ordinal,
            board: cluster.board.text(),
            directory: directory.path().into(),
        };
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.args([
            test,
            "--exact",
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ]);
        // The tests may run inside a world, whose variables are not for the cluster.
        for variable in [
            "RANK",
            "WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
            "TELEGRAD_NAME",
        ] {
            command.env_remove(variable);
        }
        env.put_into(&mut command);
        command.envs(cluster.env.iter().map(|(variable, value)| (variable, value)));
        command
            .stdin(Stdio::null())
            .stderr(writer.try_clone().expect("a second handle to a pipe"))
            .stdout(writer);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{name}`: {error}"));
        // Closes this process's end of the pipe.
        drop(command);
        let pid = Pid::from_child(&child);
        handles.push(pidfd_open(pid, PidfdFlags::empty()).expect("a handle to a process of our own"));
        outputs.push(Output::collect(reader, name));
        let sender = sender.clone();
        std::thread::spawn(move || sender.send((rank, child.wait())));
    }
    let handles = Arc::new(handles);
    let for_board = handles.clone();
    cluster.board.on_kill(move |rank| kill(&for_board, rank));

    let mut unfinished: Vec<_> = (0..cluster.names.len() as u32).collect();
    let mut failures: Vec<Failure> = Vec::new();
    let mut limit = None;
    let deadline = Instant::now() + cluster.time_limit;
    while !unfinished.is_empty() {
        let Ok((rank, status)) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        else {
            limit = Some(cluster.time_limit);
            break;
        };
        unfinished.retain(|&other| other != rank);
        let reached = || cluster.board.notes(REACHED).contains(&rank.to_string());
        let how = match status {
            Ok(status) if status.success() && reached() => None,
            Ok(status) if status.success() => Some(format!("did not reach its cluster in the test `{test}`")),
            Ok(_) if cluster.may_die.contains(&rank) => {
                cluster.board.post(DONE, &rank.to_string());
                None
            }
            Ok(status) => Some(describe(status)),
            Err(error) => Some(format!("was lost: {error}")),
        };
        if let Some(how) = how {
            failures.push(Failure { rank, how });
            break;
        }
    }
    for &rank in &unfinished {
        kill(&handles, rank);
    }
    let outputs: Vec<_> = outputs.into_iter().map(Output::finish).collect();
    if limit.is_some() || !failures.is_empty() {
        panic!(
            "\n{}",
            report::text(&cluster.names, &failures, &unfinished, limit, &outputs)
        );
    }
}

/// Number of clusters of processes that the test has run before.
fn ordinal(test: &str) -> u64 {
    static RUN: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
    let mut run = RUN.lock();
    let times = run.entry(test.into()).or_default();
    *times += 1;
    *times - 1
}

fn kill(handles: &[OwnedFd], rank: u32) {
    /// A process usually ends at once; a busy machine may take longer.
    const LIMIT: Timespec = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let process = &handles[rank as usize];
    // Fails only if the process has ended already.
    let _ = pidfd_send_signal(process, Signal::KILL);
    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&LIMIT));
}

fn describe(status: ExitStatus) -> String {
    match status.code() {
        // Rust's exit status after a panic.
        Some(101) => "panicked".into(),
        _ => format!("died: {status}"),
    }
}
