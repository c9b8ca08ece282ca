//! Random graphs over random workers: the gradients are those of the same graph in one place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use fastrand::Rng;
use telegrad_autograd::{Backward, Mode};
use telegrad_rpc::remote;
use telegrad_testkit::Board;

use crate::program::{Alone, HELD, Name, PARAMETERS, Program, WORKERS, run_spread};
use crate::scalar::gradients;

use super::*;

/// A thousand graphs in all, a share on each worker.
const GRAPHS: u64 = 1000;

/// How many graphs had results that the loss did not need, so that it had to be found out which.
static EXPLORED: AtomicUsize = AtomicUsize::new(0);

/// How many had not.
static STRAIGHT: AtomicUsize = AtomicUsize::new(0);

#[remote]
fn own_gradients() -> Result<Vec<Option<f64>>> {
    let here = World::current()?.rank();
    let gradients = Context::<Scalars>::current()?.gradients()?;
    let held = HELD.lock();
    let gradient_of = |nth| gradients.of_leaf(held[&(here, nth)].id()).map(Scalar::value);
    Ok((0..PARAMETERS).map(gradient_of).collect())
}

/// One graph, and the passes through it.
pub(super) struct Case {
    seed: u64,
    here: u32,
    program: Program,
    inputs: Vec<f64>,
    passes: usize,
}

impl Case {
    pub(super) fn new(seed: u64, here: u32) -> Self {
        let mut random = Rng::with_seed(seed);
        Self {
            seed,
            here,
            program: Program {
                seed: random.u64(..),
                depth: random.u8(1..=3),
                tidy: random.u8(..4) == 0,
            },
            inputs: (0..random.usize(..3)).map(|_| random.f64()).collect(),
            passes: random.usize(1..=3),
        }
    }

    fn inputs(&self) -> Vec<Scalar> {
        self.inputs.iter().map(|value| Scalar::constant(*value)).collect()
    }

    /// What each pass starts from, out of what the program gave.
    fn losses(&self, given: &[Scalar]) -> Vec<Vec<Scalar>> {
        let mut random = Rng::with_seed(self.seed + 1);
        let tracked: Vec<_> = given.iter().filter(|scalar| scalar.is_tracked()).collect();
        let pass = |nth| {
            // All of them at least once, when all is to be used.
            let mut loss: Vec<_> = match (nth, self.program.tidy) {
                (0, true) => tracked.iter().map(|scalar| (*scalar).clone()).collect(),
                _ => Vec::new(),
            };
            if !tracked.is_empty() {
                loss.extend((0..random.usize(1..=2)).map(|_| tracked[random.usize(..tracked.len())].clone()));
            }
            loss
        };
        (0..self.passes).map(pass).collect()
    }

    /// The gradients by plain reverse mode; nothing when the loss depends on no parameter.
    pub(super) fn expected(&self, parameters: &BTreeMap<Name, Scalar>) -> Option<BTreeMap<Name, f64>> {
        let alone = Alone {
            here: self.here,
            parameters,
        };
        let given = self.program.run(&alone, self.inputs()).unwrap();
        let mut expected = BTreeMap::new();
        for loss in self.losses(&given) {
            if loss.is_empty() {
                return None;
            }
            let roots: Vec<_> = loss.into_iter().map(|root| (root, 1.0)).collect();
            let found = gradients(&roots);
            for (name, parameter) in parameters {
                if let Some(gradient) = found.get(&parameter.id()) {
                    *expected.entry(*name).or_insert(0.0) += gradient;
                }
            }
        }
        Some(expected)
    }

    /// The gradients over all workers.
    pub(super) fn found(&self, world: &World, mode: Mode) -> Result<BTreeMap<Name, f64>> {
        context(world, |context| {
            let given = run_spread(world, self.program, self.inputs())?;
            for (nth, loss) in self.losses(&given).iter().enumerate() {
                let options = Backward {
                    mode,
                    retain_graph: nth + 1 < self.passes,
                    ..Backward::default()
                };
                context.backward_with(loss, &options)?;
            }
            let mut found = BTreeMap::new();
            for rank in 0..WORKERS {
                let gradients = world.rpc_sync(rank, own_gradients, ())?;
                let gradients = gradients.into_iter().enumerate();
                found.extend(gradients.filter_map(|(nth, gradient)| Some(((rank, nth), gradient?))));
            }
            Ok(found)
        })
    }

    fn check(&self, world: &World, parameters: &BTreeMap<Name, Scalar>) {
        let Some(expected) = self.expected(parameters) else {
            return;
        };
        let found = self.found(world, Mode::Smart);
        self.compare(found.unwrap_or_else(|error| panic!("{self}: {error}")), &expected);
        if self.seed.is_multiple_of(3) || self.program.tidy {
            self.check_fast(world, &expected);
        }
    }

    /// In fast mode, the same or the error that it is not to be had.
    fn check_fast(&self, world: &World, expected: &BTreeMap<Name, f64>) {
        match self.found(world, Mode::Fast) {
            Ok(found) => {
                STRAIGHT.fetch_add(1, SeqCst);
                self.compare(found, expected);
            }
            Err(error) => {
                let unused =
                    matches!(autograd_error(&error), AutogradError::Unused(list) if !list.is_empty());
                // A tidy program's later passes need not use everything.
                assert!(
                    unused && (!self.program.tidy || self.passes > 1),
                    "{self}: {error}"
                );
                EXPLORED.fetch_add(1, SeqCst);
            }
        }
    }

    #[track_caller]
    pub(super) fn compare(&self, found: BTreeMap<Name, f64>, expected: &BTreeMap<Name, f64>) {
        let names = |gradients: &BTreeMap<Name, f64>| gradients.keys().copied().collect::<Vec<_>>();
        assert_eq!(names(&found), names(expected), "{self}");
        for (name, gradient) in expected {
            let difference = (found[name] - gradient).abs();
            assert!(
                difference <= 1e-9 * gradient.abs().max(1e-3),
                "{self}: {} for {gradient} of {name:?}",
                found[name]
            );
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {} on worker {}", self.seed, self.here)
    }
}

#[test]
fn a_thousand_random_graphs_have_the_gradients_that_they_have_in_one_place() {
    let cluster = with_scalars(Cluster::threads(WORKERS as usize));
    random_graphs(cluster, GRAPHS);
    let (explored, straight) = (EXPLORED.load(SeqCst), STRAIGHT.load(SeqCst));
    assert!(explored > 50, "{explored} graphs had unused results");
    assert!(straight > 50, "{straight} graphs had none");
}

#[test]
fn random_graphs_on_workers_with_a_single_thread() {
    let cluster = with_scalars(Cluster::threads(WORKERS as usize));
    random_graphs(cluster.options(|options| options.num_worker_threads = 1), 200);
}

#[test]
fn random_graphs_over_processes() {
    let cluster = with_scalars(Cluster::processes(WORKERS as usize));
    random_graphs(cluster, 100);
}

/// Every worker goes through its share of them at the same time.
fn random_graphs(cluster: Cluster, graphs: u64) {
    fill();
    let board = cluster.board();
    cluster.run(move |world| {
        let parameters = copies();
        let here = world.rank();
        let mine = (0..graphs).filter(|seed| seed % u64::from(WORKERS) == u64::from(here));
        for seed in mine {
            Case::new(seed, here).check(&world, &parameters);
        }
        wait_for_the_others(&board);
        assert_nothing_left(&world);
    });
}

/// Parameters of the same values, for reverse mode in one place.
pub(super) fn copies() -> BTreeMap<Name, Scalar> {
    let held = HELD.lock();
    let copy = |(name, scalar): (&Name, &Scalar)| (*name, Scalar::leaf(scalar.value()));
    held.iter().map(copy).collect()
}

/// Gives every worker its parameters, unless another test has.
pub(super) fn fill() {
    let mut random = Rng::with_seed(3);
    let mut held = HELD.lock();
    if !held.is_empty() {
        return;
    }
    for rank in 0..WORKERS {
        for nth in 0..PARAMETERS {
            held.insert((rank, nth), Scalar::leaf(random.f64() * 2.0 - 1.0));
        }
    }
}

fn wait_for_the_others(board: &Board) {
    board.raise("done");
    board.wait_for("done", WORKERS as usize);
}

#[track_caller]
fn assert_nothing_left(world: &World) {
    let left = world.autograd_info().unwrap();
    assert_eq!(left, AutogradInfo::default());
}
