//! The sections of the benchmark and the form of their values.

mod against;
mod command;

use serde_json::Value;

use command::{bench, find, lines};

#[test]
fn init_measures_each_stage_of_a_world() {
    for transport in ["auto", "mem"] {
        let lines = lines(&["--quick", "--json", "--only", "init", "--transport", transport]);
        for (metric, unit) in [
            ("init_rpc", "ms"),
            ("first_call_full_mesh", "ms"),
            ("graceful_shutdown", "ms"),
            ("memory_per_process", "MB RSS"),
            ("memory_beyond_program", "MB RSS"),
        ] {
            let of = |line: &&Value| line["metric"] == metric;
            let found: Vec<_> = lines.iter().filter(of).collect();
            let worlds: Vec<_> = found.iter().map(|line| &line["params"]["world"]).collect();
            assert_eq!(worlds, [2, 4, 8]);
            assert!(found.iter().all(|line| line["unit"] == unit), "{found:?}");
        }
        let memory = find(&lines, "memory_per_process", "", "");
        assert!(memory["value"].as_f64() >= memory["rss_before_init_mb"].as_f64());
    }
}

#[test]
fn mixed_measures_small_calls_idle_and_during_transfers() {
    let lines = lines(&["--quick", "--json", "--only", "mixed", "--max-mb", "64"]);
    find(&lines, "mixed_latency", "while", "idle");
    let busy = find(&lines, "mixed_latency", "while", "64MB tensors flow");
    assert!(busy["tensors"].as_u64() > Some(0));
    assert!(
        lines
            .iter()
            .all(|line| line["params"]["while"] != "256MB tensors flow")
    );
}

#[test]
fn fresh_measures_a_tensor_next_to_a_copy() {
    let lines = lines(&["--quick", "--json", "--only", "fresh", "--fresh-mb", "48"]);
    let floor = find(&lines, "floor_fresh_copy", "size", "48MB");
    assert!(floor["value"].as_f64() > Some(0.0));
    for way in ["argument", "result"] {
        let row = find(&lines, "tensor_fresh", "as", way);
        assert_eq!(row["bytes"], 48 << 20);
    }
}

#[test]
fn profile_measures_the_cost_of_profiling() {
    let lines = lines(&["--quick", "--json", "--only", "profile"]);
    for call in ["100us", "nop"] {
        let of = |metric: &str| -> Vec<&Value> {
            let found = lines
                .iter()
                .filter(|line| line["metric"] == metric && line["params"]["call"] == call);
            found.collect()
        };
        let recorded = |found: &[&Value]| -> Vec<Value> {
            found
                .iter()
                .map(|line| line["params"]["recorded"].clone())
                .collect()
        };
        let (latency, cost) = (of("profiled_latency"), of("profiling_cost"));
        assert_eq!(recorded(&latency), ["no", "profile", "process"]);
        assert_eq!(recorded(&cost), ["profile", "process"]);
        let median = |line: &Value| line["value"].as_f64().unwrap();
        for (cost, with) in cost.iter().zip(&latency[1..]) {
            let ratio = median(with) / median(latency[0]);
            // Medians are rounded to a hundredth of a microsecond.
            assert!(
                (median(cost) - ratio).abs() < 0.05 * ratio,
                "{cost} is not {ratio}"
            );
        }
        if call == "100us" {
            assert!(median(latency[0]) >= 100.0, "{}", latency[0]);
        }
    }
}

#[test]
fn growth_measures_costs_and_exponents() {
    let lines = lines(&[
        "--quick",
        "--json",
        "--only",
        "growth",
        "--transport",
        "mem",
        "--max-mb",
        "1",
    ]);
    for metric in [
        "growth_init",
        "growth_all_to_all",
        "growth_tensor",
        "growth_references",
        "growth_contexts",
    ] {
        find(&lines, metric, "", "");
        let exponent = find(&lines, "growth_exponent", "of", metric);
        assert!(exponent["value"].is_f64() && exponent["to"].as_f64() > exponent["from"].as_f64());
    }
}

#[test]
fn reps_repeats_every_section() {
    let lines = lines(&["--quick", "--json", "--only", "latency", "--reps", "2"]);
    let of = |line: &&Value| line["metric"] == "floor_unix_latency";
    let reps: Vec<_> = lines.iter().filter(of).map(|line| &line["rep"]).collect();
    assert_eq!(reps, [0, 1]);
    let output = bench(&["--quick", "--only", "latency", "--reps", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("floor_tcp_latency").count(), 1, "{text}");
}

#[test]
fn latency_and_throughput_measure_calls_and_floors() {
    for transport in ["auto", "tcp", "mem"] {
        let lines = lines(&[
            "--quick",
            "--json",
            "--only",
            "latency,throughput",
            "--transport",
            transport,
        ]);
        for call in ["builtin_add_ones2", "user_function"] {
            let latency = find(&lines, "rpc_sync_latency", "call", call);
            assert_eq!(latency["unit"], "us");
            assert_eq!(latency["value"], latency["p50"]);
            assert!(latency["p99"].as_f64() >= latency["p50"].as_f64());
            let rate = find(&lines, "rpc_async_throughput", "call", call);
            assert_eq!(rate["params"]["outstanding"], 64);
            assert!(rate["value"].as_f64() > Some(0.0));
        }
        find(&lines, "rpc_sync_latency", "call", "inline");
        for floor in ["floor_unix_latency", "floor_tcp_latency", "floor_unix_pipelined"] {
            assert!(find(&lines, floor, "", "")["value"].as_f64() > Some(0.0));
        }
    }
}

#[test]
fn echo_measures_tensors_up_to_the_maximum_size() {
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
fn rref_measures_single_and_many_references() {
    for transport in ["auto", "mem"] {
        let lines = lines(&["--quick", "--json", "--only", "rref", "--transport", transport]);
        for (metric, call) in [
            ("rref_remote_to_here_latency", "builtin_add_ones2"),
            ("rref_remote_to_here_latency", "user_function"),
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
        // Confirmation comes after issue.
        let rate = |metric| find(&lines, metric, "", "")["best"].as_f64();
        assert!(rate("rref_create_confirmed_rate") <= rate("rref_create_issue_rate"));
    }
}

#[test]
fn ps_and_fanout_measure_worlds_of_many_workers() {
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
        for call in ["builtin_add", "user_function"] {
            let line = find(&lines, "fanout", "call", call);
            assert_eq!(line["params"]["workers"], 8);
            assert!(line["round_us_p99"].as_f64() >= line["round_us_p50"].as_f64());
        }
    }
}

#[test]
fn the_table_has_the_ratio_to_the_floor() {
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
fn an_unknown_section_is_an_error_that_lists_the_sections() {
    let output = bench(&["--only", "latency,speed"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("speed") && text.contains("throughput"), "{text}");
}

#[test]
fn autograd_chain_and_split_measure_gradients_and_training() {
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
