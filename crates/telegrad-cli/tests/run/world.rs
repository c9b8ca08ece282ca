//! The environment of a worker.

use crate::launcher::run_sh;

#[test]
fn every_worker_gets_its_rank_world_size_and_name() {
    let outcome = run_sh(
        "-n 3 --names a,b,c",
        "echo rank $RANK of $WORLD_SIZE as $TELEGRAD_NAME",
    )
    .wait();
    let mut lines = outcome.stdout;
    lines.sort();
    assert_eq!(
        lines,
        [
            "a | rank 0 of 3 as a",
            "b | rank 1 of 3 as b",
            "c | rank 2 of 3 as c"
        ]
    );
    assert_eq!(outcome.stderr, [""; 0]);
    assert_eq!(outcome.code, Some(0));
}

#[test]
fn names_default_to_worker_and_rank() {
    let world = run_sh("-n 2", "echo $TELEGRAD_NAME");
    assert_eq!(world.lines(2), ["worker0 | worker0", "worker1 | worker1"]);
}

#[test]
fn the_number_of_names_is_the_number_of_workers() {
    let world = run_sh("--names ps,trainer", "echo $RANK/$WORLD_SIZE");
    assert_eq!(world.lines(2), ["ps      | 0/2", "trainer | 1/2"]);
}

#[test]
fn all_workers_get_the_same_address() {
    let world = run_sh("-n 2", "echo $MASTER_ADDR:$MASTER_PORT");
    let lines = world.lines(2);
    let port = lines[0].strip_prefix("worker0 | 127.0.0.1:").unwrap();
    assert!(port.parse::<u16>().unwrap() > 0);
    assert_eq!(lines[1], format!("worker1 | 127.0.0.1:{port}"));
}

#[test]
fn concurrent_worlds_have_different_ports() {
    let worlds = [(); 2].map(|()| run_sh("-n 1", "echo $MASTER_PORT; exec sleep 1000"));
    assert_ne!(worlds[0].line(), worlds[1].line());
}

#[test]
fn standard_input_of_workers_is_empty() {
    let world = run_sh("-n 2", "cat; echo end");
    assert_eq!(world.lines(2), ["worker0 | end", "worker1 | end"]);
}

#[test]
fn workers_share_the_cores_unless_told_otherwise() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let threads = |workers: usize| (cores / workers).max(1).to_string();
    for workers in [1, 2, 7] {
        let world = run_sh(&format!("-n {workers}"), "echo threads $RAYON_NUM_THREADS");
        let expected = std::env::var("RAYON_NUM_THREADS").unwrap_or_else(|_| threads(workers));
        for line in world.lines(workers) {
            assert!(
                line.ends_with(&format!("threads {expected}")),
                "{workers} workers: {line}"
            );
        }
    }
}
