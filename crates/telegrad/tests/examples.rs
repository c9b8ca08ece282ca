//! Every example runs by itself, within the time limit, and prints its result.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time limit of an example, which takes a second or two; the rest is for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn one_to_one_gets_three_results_from_the_master() {
    let out = run("one_to_one");
    assert_line(&out, "worker", "add([1, 2], [10, 20]) = [11.0, 22.0]");
    assert_line(&out, "worker", "min(1, 2) = 1");
    assert_line(&out, "worker", "scale([1, 2], 3) = [3.0, 6.0]");
    assert_line(&out, "master", "scale runs in process ");
    assert_line(&out, "worker", "all results are right");
}

#[test]
fn one_to_many_keeps_every_worker_busy() {
    let out = run("one_to_many");
    for worker in ["w1", "w2", "w3"] {
        assert_line(&out, "master", &format!("{worker} did "));
    }
    assert_line(&out, "master", "all 24 results are right");
}

#[test]
fn chain_gives_another_result_in_another_order() {
    let out = run("chain");
    assert_line(
        &out,
        "start",
        "add, then ask: start 3 → middle 4 → end 8 → middle 8 → start 8",
    );
    assert_line(
        &out,
        "start",
        "ask, then add: start 3 → middle 3 → end 6 → middle 7 → start 7",
    );
}

#[test]
fn many_to_one_is_faster_with_asynchronous_calls() {
    let out = run("many_to_one");
    assert_line(&out, "server", "synchronous: 4 clients with 40 requests each");
    assert_line(&out, "server", "asynchronous: 4 clients with 40 requests each");
    assert_line(&out, "server", "asynchronous calls were ");
}

#[test]
fn nested_completes_with_one_thread_per_worker() {
    let out = run("nested");
    assert_line(&out, "a", "a → b → a → b → a → b → a → b → a");
    assert_line(&out, "b", "b → a → b → a → b → a → b → a → b");
    assert_line(&out, "a", "50 chains of 8 calls, all complete");
    assert_line(&out, "b", "50 chains of 8 calls, all complete");
}

#[test]
fn profiling_shows_who_waits_and_writes_a_trace() {
    let out = run("profiling");
    assert_line(&out, "front", "the last of 5 steps:");
    assert_line(&out, "front", "`front` waits most: ");
    assert_line(&out, "front", "the trace is in ");
    for shown in [
        "rpc_async#telegrad::nn::AnyModule::forward",
        "(front -> back)",
        "#remote_op: Conv2d",
        "DistributedOptimizer::step",
        "bubble: ",
        "critical path",
    ] {
        assert!(out.contains(shown), "no {shown} in\n{out}");
    }
}

#[test]
fn rref_frees_its_object_with_the_last_reference() {
    let out = run("rref");
    assert_line(&out, "maker", "fetched: [2.0, 4.0]");
    assert_line(&out, "maker", "mean of 2 tensors: [2.0, 4.0]");
    assert_line(
        &out,
        "maker",
        "the third worker has added one; mean of 3 tensors: [3.0, 5.0]",
    );
    assert_line(
        &out,
        "maker",
        "`rref::Mean` on `owner` (ready), held by `maker`, `third`",
    );
    assert_line(&out, "owner", "the mean of 3 tensors is freed");
    assert_line(&out, "maker", "no references are left, and no values");
}

#[test]
fn parameter_server_shows_every_update_to_every_trainer() {
    let out = run("parameter_server");
    assert_line(&out, "server", "after   0 updates: loss 1.386");
    assert_line(&out, "server", "after 200 updates: loss 0.");
    assert!(
        out.contains("updates that the trainers saw: [200, 200, 200, 200]"),
        "{out}"
    );
    assert_line(
        &out,
        "server",
        "without rounds, after 800 smaller updates: loss 0.",
    );
}

#[test]
fn actor_learner_improves_the_policy() {
    let out = run("actor_learner");
    assert_line(&out, "learner", "updates  1 to 10: mean reward ");
    assert_line(&out, "learner", "updates 41 to 50: mean reward ");
    assert_line(&out, "learner", "from ");
}

#[test]
fn distributed_autograd_has_gradients_on_both_workers() {
    let out = run("distributed_autograd");
    assert_line(
        &out,
        "trainer",
        "gradient on the trainer [3.0, 4.0], on the server [1.0, 2.0]",
    );
    assert_line(&out, "trainer", "step  0: loss 53.00000");
    assert_line(&out, "trainer", "the product is now [10.000, 10.000]");
    assert_line(&out, "trainer", "contexts left: 0");
}

#[test]
fn split_learning_recognises_digits() {
    let out = run("split_learning");
    assert_line(&out, "client", "epoch 12: loss 0.0");
    assert_line(&out, "client", "accuracy on images it has not seen: 9");
}

#[test]
fn candle_model_is_trained_elsewhere_and_read_by_candle() {
    let out = run("candle_model");
    assert_line(
        &out,
        "trainer",
        "on the server: hidden.bias, hidden.weight, out.bias, out.weight",
    );
    assert_line(&out, "trainer", "epoch 10: loss 0.");
    assert_line(&out, "trainer", "accuracy on images it has not seen: 9");
}

#[test]
fn pipeline_learns_the_same_with_and_without_micro_batches() {
    let out = run("pipeline");
    assert_line(&out, "driver", "step 30: loss ");
    assert_line(&out, "driver", "as a whole ");
}

#[test]
fn embedding_server_teaches_every_trainer() {
    let out = run("embedding_server");
    for trainer in ["trainer1", "trainer2", "trainer3"] {
        assert_line(&out, "table", &format!("{trainer}: loss from "));
    }
    // A row has 32 bytes, so the table was not sent.
    let moved = out.lines().find_map(|line| line.split("a step moved ").nth(1));
    let moved: u64 = moved
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap();
    assert!((1..100).contains(&moved), "{out}");
}

#[test]
fn rnn_learns_a_text() {
    let out = run("rnn");
    assert_line(&out, "trainer", "step 250: loss 0.");
    assert_line(&out, "trainer", "it says: The ");
}

#[test]
fn an_example_whose_worker_fails_exits_non_zero_and_names_it() {
    // No worker can listen on this address.
    let output = finish("chain", example("chain").env("TELEGRAD_ADDRESS", "nowhere"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("TELEGRAD_ADDRESS is `nowhere`, not an IP address"),
        "{errors}"
    );
    assert!(errors.contains("telegrad: worker `"), "{errors}");
}

#[test]
fn an_example_in_somebody_elses_world_says_how_to_start_it() {
    let output = finish("chain", example("chain").env("RANK", "0").env("WORLD_SIZE", "7"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("telegrad run --names start,middle,end"),
        "{errors}"
    );
}

/// Output of an example that succeeds.
fn run(name: &str) -> String {
    let output = finish(name, &mut example(name));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "`{name}` ended with {}:\n{out}{errors}",
        output.status
    );
    out
}

/// Asserts that `worker` has printed a line that starts with `text`.
fn assert_line(out: &str, worker: &str, text: &str) {
    let found = out.lines().any(|line| {
        let rest = line.strip_prefix(worker).map(str::trim_start);
        rest.and_then(|rest| rest.strip_prefix('|'))
            .is_some_and(|rest| rest.trim_start().starts_with(text))
    });
    assert!(found, "`{worker}` has not printed `{text}`:\n{out}");
}

/// The command of an example, outside any world.
fn example(name: &str) -> Command {
    // This test is `target/<profile>/deps/examples-<hash>`; the examples are in `target/<profile>/examples`.
    let test = std::env::current_exe().expect("the system says where this test is");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("cargo puts tests two levels below the target directory");
    let program: PathBuf = profile.join("examples").join(name);
    assert!(
        program.is_file(),
        "there is no {}: `cargo test` and `cargo nextest run` build the examples unless told to run only some \
         targets; build them with `cargo build -p telegrad --examples` (and `--release` if the tests have it)",
        program.display(),
    );
    let mut command = Command::new(program);
    for variable in [
        "RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TELEGRAD_NAME",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Runs `command` to its end, within the time limit.
fn finish(name: &str, command: &mut Command) -> Output {
    let child: Child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("`{name}` does not start: {error}"));
    let id = rustix::process::Pid::from_child(&child);
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    match ended.recv_timeout(LIMIT) {
        Ok(output) => output.expect("the output can be read"),
        Err(_) => {
            // The workers die with it. Its output shows their progress.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            let output = ended
                .recv_timeout(LIMIT)
                .map(|output| output.expect("the output can be read"));
            panic!("`{name}` has not ended within {LIMIT:?}: {output:?}");
        }
    }
}
