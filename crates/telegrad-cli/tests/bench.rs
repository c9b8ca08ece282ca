//! `telegrad bench` measures what it says, in a form that can be joined with other benchmarks.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far more than a quick run takes, even unoptimised on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telegrad"));
    command
        .arg("bench")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    // Small enough for the pipes, so the child can be waited for before its output is read.
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("`telegrad bench {}` did not end within {LIMIT:?}", args.join(" "));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn lines(args: &[&str]) -> Vec<Value> {
    let output = bench(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn find<'a>(lines: &'a [Value], metric: &str, key: &str, value: &str) -> &'a Value {
    let found = lines
        .iter()
        .find(|line| line["metric"] == metric && (key.is_empty() || line["params"][key] == value));
    found.unwrap_or_else(|| panic!("no {metric} with {key}={value} in {lines:#?}"))
}

#[test]
fn calls_are_measured_together_with_their_floors() {
    for transport in ["auto", "tcp", "mem"] {
        let lines = lines(&[
            "--quick",
            "--json",
            "--only",
            "latency,throughput",
            "--transport",
            transport,
        ]);
        for call in ["builtin_add_ones2", "python_udf"] {
            let latency = find(&lines, "rpc_sync_latency", "call", call);
            assert_eq!(latency["unit"], "us");
            assert_eq!(latency["value"], latency["p50"]);
            assert!(latency["p99"].as_f64() >= latency["p50"].as_f64());
            let rate = find(&lines, "rpc_async_throughput", "call", call);
            assert_eq!(rate["params"]["outstanding"], 64);
            assert!(rate["value"].as_f64() > Some(0.0));
        }
        for floor in ["floor_unix_latency", "floor_tcp_latency", "floor_unix_pipelined"] {
            assert!(find(&lines, floor, "", "")["value"].as_f64() > Some(0.0));
        }
    }
}

#[test]
fn tensors_are_measured_up_to_the_largest_size_asked_for() {
    let lines = lines(&["--quick", "--json", "--only", "echo", "--max-mb", "1"]);
    for size in ["4KB", "64KB", "1MB"] {
        for metric in [
            "tensor_echo",
            "tensor_sink",
            "floor_unix_throughput",
            "floor_tcp_throughput",
            "floor_memcpy",
        ] {
            let line = find(&lines, metric, "size", size);
            assert_eq!(line["unit"], "GB/s");
            assert!(line["value"].as_f64() > Some(0.0));
        }
    }
    assert!(lines.iter().all(|line| line["params"]["size"] != "16MB"));
}

#[test]
fn references_are_measured_one_at_a_time_and_many_at_once() {
    for transport in ["auto", "mem"] {
        let lines = lines(&["--quick", "--json", "--only", "rref", "--transport", transport]);
        for (metric, call) in [
            ("rref_remote_to_here_latency", "builtin_add_ones2"),
            ("rref_remote_to_here_latency", "python_udf"),
            ("rref_method_latency", "rref.rpc_sync().bump"),
        ] {
            let latency = find(&lines, metric, "call", call);
            assert_eq!(latency["unit"], "us");
            assert_eq!(latency["value"], latency["p50"]);
        }
        for metric in [
            "rref_create_issue_rate",
            "rref_create_confirmed_rate",
            "rref_delete_rate",
        ] {
            let rate = find(&lines, metric, "", "");
            assert_eq!(rate["unit"], "rrefs/s");
            assert!(rate["value"].as_f64() > Some(0.0));
        }
        // All are confirmed no sooner than they are issued.
        let rate = |metric| find(&lines, metric, "", "")["best"].as_f64();
        assert!(rate("rref_create_confirmed_rate") <= rate("rref_create_issue_rate"));
    }
}

#[test]
fn worlds_of_many_workers_are_measured_one_after_the_other() {
    for transport in ["auto", "mem"] {
        let lines = lines(&[
            "--quick",
            "--json",
            "--only",
            "ps,fanout",
            "--transport",
            transport,
        ]);
        let steps = |clients: u64| {
            let of = |line: &&Value| line["params"]["clients"] == clients;
            lines.iter().filter(of).collect::<Vec<_>>()
        };
        for clients in [4, 8] {
            let modes: Vec<_> = steps(clients)
                .iter()
                .map(|line| &line["params"]["mode"])
                .collect();
            assert_eq!(modes, ["push_and_pull_separate", "push_pull_one_call"]);
        }
        for (metric, unit) in [("parameter_server", "steps/s"), ("fanout", "rounds/s")] {
            let line = find(&lines, metric, "size", "1MB");
            assert_eq!(line["unit"], unit);
            assert!(line["value"].as_f64() > Some(0.0));
        }
        for call in ["builtin_add", "python_udf"] {
            let line = find(&lines, "fanout", "call", call);
            assert_eq!(line["params"]["workers"], 8);
            assert!(line["round_us_p99"].as_f64() >= line["round_us_p50"].as_f64());
        }
    }
}

#[test]
fn people_get_a_table_with_the_ratio_to_the_floor() {
    let output = bench(&["--quick", "--only", "latency"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("× floor"), "{text}");
    let row = text
        .lines()
        .find(|line| line.contains("rpc_sync_latency"))
        .unwrap();
    let ratio = row.trim_end_matches(['│', ' ']).rsplit(' ').next().unwrap();
    assert!(ratio.parse::<f64>().is_ok_and(|ratio| ratio > 0.0), "{row}");
}

#[test]
fn an_unknown_section_is_refused_with_those_there_are() {
    let output = bench(&["--only", "latency,speed"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("speed") && text.contains("throughput"), "{text}");
}

#[test]
fn gradients_and_split_learning_are_measured_next_to_the_same_network_on_one_worker() {
    let lines = lines(&["--quick", "--json", "--only", "autograd,chain,split"]);
    for size in ["tiny", "1MB"] {
        let step = find(&lines, "dist_autograd_step", "size", size);
        assert!(step["p50"].as_f64().unwrap() > 0.0 && step["params"]["workers"] == 2);
        let chain = find(&lines, "dist_autograd_chain", "size", size);
        assert_eq!(chain["params"]["workers"], 4);
    }
    for shape in ["driver_calls_each", "nested_calls"] {
        find(&lines, "dist_autograd_chain", "shape", shape);
    }
    let split = lines.iter().filter(|line| line["metric"] == "split_learning");
    let processes: Vec<_> = split.map(|line| line["params"]["processes"].clone()).collect();
    assert_eq!(processes, [2, 3]);
    let local = find(&lines, "split_learning_local_reference", "", "");
    assert!(local["unit"] == "steps/s" && local["value"].as_f64().unwrap() > 0.0);
}
