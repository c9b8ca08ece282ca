//! Many small steps leave no state, and memory use does not grow.
//!
//! With `TELEGRAD_FULL_LOAD` set the test makes 10,000 steps, otherwise 1,800.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use candle_core::{Device, Tensor};
use telegrad_autograd::candle::Candle;
use telegrad_autograd::{AutogradInfo, AutogradWorld, Context, Param};
use telegrad_rpc::{Error, RRef, Result, World, remote};
use telegrad_testkit::{Cluster, ReferenceCounts, wait_until};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocated memory of this process, in bytes.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of allocated bytes.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator, and its result returned unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of the system's allocator.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            IN_USE.fetch_add(layout.size(), Relaxed);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; every block comes from the system's allocator.
        unsafe { System.dealloc(block, layout) };
        IN_USE.fetch_sub(layout.size(), Relaxed);
    }
}

/// The allowed growth after the first tenth of the steps: 40 bytes for each step of the short run. A leak of one number
/// per step exceeds that, with its container.
const GROWTH: usize = 64 << 10;

/// The time limit of a test's waits.
const PATIENCE: Duration = Duration::from_secs(20);

fn steps() -> usize {
    if std::env::var_os("TELEGRAD_FULL_LOAD").is_some() {
        10_000
    } else {
        1_800
    }
}

/// `x · w`, with a method that updates `w`.
struct Scale {
    weight: Param,
}

#[remote]
impl Scale {
    fn new() -> Result<Self> {
        let weight = Param::new(&Tensor::new(&[1f32, 2.0, 3.0], &Device::Cpu)?)?;
        Ok(Self { weight })
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        Ok((x * self.weight.tensor())?)
    }

    fn forward_through(&self, x: Tensor, next: RRef<Scale>) -> Result<Tensor> {
        next.rpc_sync(Scale::forward, (self.forward(x)?,))
    }

    fn refuse(&self, _x: Tensor) -> Result<Tensor> {
        Err(Error::other("not today"))
    }

    fn learn(&self) -> Result<u64> {
        let gradient = Context::<Candle>::current()?.gradients()?.get(&self.weight)?;
        let gradient = gradient.ok_or_else(|| Error::other("no gradient"))?;
        self.weight.set(&(self.weight.value() - (gradient * 1e-6)?)?)
    }
}

#[remote]
fn info() -> Result<AutogradInfo> {
    World::current()?.autograd_info()
}

/// One step: calls, nested calls, a remote value, and at times an unused result or an error.
fn step(world: &World, scales: &[RRef<Scale>], nth: usize) -> Result<()> {
    let x = Tensor::new(&[0.1f32, 0.2, 0.3], &Device::Cpu)?;
    world.context(|context| {
        let y = scales[0].rpc_sync(Scale::forward_through, (x, scales[1].clone()))?;
        let kept = scales[1].remote(Scale::forward, (y.clone(),))?;
        let z = (kept.to_here()? + &y)?;
        if nth.is_multiple_of(3) {
            scales[0].rpc_sync(Scale::forward, (y.clone(),))?;
        }
        if nth.is_multiple_of(5) {
            scales[0].rpc_sync(Scale::refuse, (y,))?;
        }
        context.backward(&[z.sum_all()?])?;
        for scale in scales {
            scale.rpc_sync(Scale::learn, ())?;
        }
        Ok(())
    })
}

/// The allocated memory once all workers are idle.
fn settled(world: &World) -> usize {
    for rank in 0..3 {
        let nothing = || world.rpc_sync(rank, info, ()).unwrap() == AutogradInfo::default();
        let instead = || format!("{:?}", world.rpc_sync(rank, info, ()));
        wait_until(PATIENCE, nothing, instead);
    }
    // References to remote values are released in the background.
    let left = || ReferenceCounts::on(world).untold == 0 && ReferenceCounts::on(world).held == 2;
    wait_until(PATIENCE, left, || format!("{:?}", ReferenceCounts::on(world)));
    IN_USE.load(Relaxed)
}

#[test]
fn nothing_grows_over_thousands_of_steps() {
    let cluster = Cluster::threads(3).time_limit(Duration::from_secs(150));
    let cluster = cluster.options(|options| options.extension = Some(telegrad_autograd::layer::<Candle>));
    cluster.run(|world| {
        if world.rank() == 0 {
            let scales: Vec<_> = [1, 2]
                .map(|rank| world.remote(rank, Scale::new, ()).unwrap())
                .into();
            let run = |steps: std::ops::Range<usize>| {
                for nth in steps {
                    let result = step(&world, &scales, nth);
                    assert_eq!(result.is_err(), nth.is_multiple_of(5), "step {nth}: {result:?}");
                }
            };
            run(0..steps() / 10);
            let before = settled(&world);
            run(steps() / 10..steps());
            let is_flat = || settled(&world) < before + GROWTH;
            wait_until(PATIENCE, is_flat, || {
                format!("{before} bytes became {}", settled(&world))
            });
        }
        world.barrier().unwrap();
    });
}
