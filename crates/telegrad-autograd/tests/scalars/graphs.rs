//! Random graphs over random workers have the gradients of the same graph on one worker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use fastrand::Rng;
use telegrad_autograd::{Backward, Mode};
use telegrad_rpc::remote;
use telegrad_testkit::Board;

use crate::program::{HELD, Name, PARAMETERS, Program, Single, WORKERS, run_distributed};
use crate::scalar::gradients;

use super::*;

/// The number of graphs, divided among the workers.
const GRAPHS: u64 = 1000;

/// The number of graphs with unused results, which need discovery.
static EXPLORED: AtomicUsize = AtomicUsize::new(0);

/// The number of graphs without unused results.
static STRAIGHT: AtomicUsize = AtomicUsize::new(0);

#[remote]
fn own_gradients() -> Result<Vec<Option<f64>>> {
    let here = World::current()?.rank();
    let gradients = Context::<Scalars>::current_of()?.gradients()?;
    let held = HELD.lock();
    let gradient_of = |nth| gradients.of_leaf(held[&(here, nth)].id()).map(Scalar::value);
    Ok((0..PARAMETERS).map(gradient_of).collect())
}

/// A graph and the passes through it.
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

    /// Picks the roots of each pass among the outputs of the program.
    fn losses(&self, outputs: &[Scalar]) -> Vec<Vec<Scalar>> {
        let mut random = Rng::with_seed(self.seed + 1);
        let tracked: Vec<_> = outputs.iter().filter(|scalar| scalar.is_tracked()).collect();
        let pass = |nth| {
            // The first pass of a tidy program uses every output.
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

    /// The gradients by plain reverse mode; `None` when a loss depends on no parameter.
    pub(super) fn expected(&self, parameters: &BTreeMap<Name, Scalar>) -> Option<BTreeMap<Name, f64>> {
        let single = Single {
            here: self.here,
            parameters,
        };
        let outputs = self.program.run(&single, self.inputs()).unwrap();
        let mut expected = BTreeMap::new();
        for loss in self.losses(&outputs) {
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
            let outputs = run_distributed(world, self.program, self.inputs())?;
            for (nth, loss) in self.losses(&outputs).iter().enumerate() {
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

    /// Checks fast mode: the same gradients, or the error that results are unused.
    fn check_fast(&self, world: &World, expected: &BTreeMap<Name, f64>) {
        match self.found(world, Mode::Fast) {
            Ok(found) => {
                STRAIGHT.fetch_add(1, SeqCst);
                self.compare(found, expected);
            }
            Err(error) => {
                let unused =
                    matches!(autograd_error(&error), AutogradError::Unused(list) if !list.is_empty());
                // Later passes of a tidy program may leave outputs unused.
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
fn a_thousand_random_graphs_have_the_gradients_of_one_worker() {
    let cluster = with_scalars(Cluster::threads(WORKERS as usize));
    random_graphs(cluster, GRAPHS);
    let (explored, straight) = (EXPLORED.load(SeqCst), STRAIGHT.load(SeqCst));
    assert!(explored > 50, "{explored} graphs had unused results");
    assert!(straight > 50, "{straight} graphs had none");
}

#[test]
fn random_graphs_on_workers_with_one_thread_have_the_same_gradients() {
    let cluster = with_scalars(Cluster::threads(WORKERS as usize));
    random_graphs(cluster.options(|options| options.num_worker_threads = 1), 200);
}

#[test]
fn random_graphs_over_processes_have_the_same_gradients() {
    let cluster = with_scalars(Cluster::processes(WORKERS as usize));
    random_graphs(cluster, 100);
}

/// Checks the graphs; all workers check their share at the same time.
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

/// Copies the parameters, for reverse mode on one worker.
pub(super) fn copies() -> BTreeMap<Name, Scalar> {
    let held = HELD.lock();
    let copy = |(name, scalar): (&Name, &Scalar)| (*name, Scalar::leaf(scalar.value()));
    held.iter().map(copy).collect()
}

/// Makes the parameters of every worker, once per process.
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
