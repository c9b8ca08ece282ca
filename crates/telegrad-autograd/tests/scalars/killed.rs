//! Random graphs while a worker is killed: no state is left.

use std::time::{Duration, Instant};

use telegrad_autograd::Mode;
use telegrad_testkit::{on_cluster, wait_until};

use crate::graphs::{Case, copies, fill};
use crate::program::WORKERS;

use super::*;

/// The time limit of a test's waits, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest time until an error is reported.
const SOON: Duration = Duration::from_secs(10);

const KILLED: u32 = WORKERS - 1;

on_cluster! { processes: Cluster::processes(WORKERS as usize) =>
    a_worker_killed_amid_random_graphs_leaves_no_state
}

fn a_worker_killed_amid_random_graphs_leaves_no_state(cluster: Cluster) {
    fill();
    let board = cluster.board();
    let survivors = WORKERS as usize - 1;
    with_scalars(cluster).may_die(KILLED).run(move |world| {
        let parameters = copies();
        let here = world.rank();
        let mut failed = 0;
        for seed in 0.. {
            let enough = here != KILLED && seed >= 40 && failed >= 5;
            if enough {
                break;
            }
            if here == 0 && seed == 20 {
                board.kill(KILLED);
            }
            let case = Case::new(1000 * u64::from(here) + seed, here);
            let Some(expected) = case.expected(&parameters) else {
                continue;
            };
            let started = Instant::now();
            match case.found(&world, Mode::Smart) {
                Ok(found) => case.compare(found, &expected),
                Err(error) => {
                    failed += 1;
                    let text = error.to_string();
                    assert!(text.contains("`w3`"), "{case}: {text}");
                    assert!(started.elapsed() < SOON, "{case}: {:?}", started.elapsed());
                }
            }
        }
        board.raise("done");
        board.wait_for("done", survivors);
        let left = || world.autograd_info().unwrap();
        wait_until(PATIENCE, || left().contexts == 0, || format!("{:?}", left()));
        board.raise("seen");
        board.wait_for("seen", survivors);
    });
}
