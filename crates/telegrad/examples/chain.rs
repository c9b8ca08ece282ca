//! Start asks middle, middle asks end, and the answer comes back the same way.
//!
//! ```sh
//! cargo run --release --example chain
//! ```
//!
//! starts all processes and builds the program; afterwards the launcher can start it, too:
//!
//! ```sh
//! cargo run --release -- run --names start,middle,end -- target/release/examples/chain
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use telegrad::prelude::*;

/// What travels. Anything made of values that can travel can itself, with this `derive`.
#[derive(Wire)]
struct Parcel {
    value: Tensor,
    /// Who handed it on, and what the value was then. Lines printed by three processes may come out
    /// in any order; what is written here is in the order in which it happened.
    trail: Vec<(String, f32)>,
}

impl Parcel {
    /// Writes this worker's name on it, the last thing before it is handed on.
    fn stamped(mut self, by: &str) -> Result<Self> {
        self.trail.push((by.to_owned(), self.value.to_scalar()?));
        Ok(self)
    }
}

/// The two things that middle does, in one order or the other.
#[derive(Wire, Clone, Copy, PartialEq)]
enum Order {
    AddThenAsk,
    AskThenAdd,
}

/// Adds one, and has the end double the value.
#[remote]
fn middle(mut parcel: Parcel, order: Order) -> Result<Parcel> {
    // The world in which this function was called; here the worker is `middle`.
    let world = World::current()?;
    if order == Order::AddThenAsk {
        parcel.value = (parcel.value + 1.0)?;
    }
    // Middle stops here until the end has answered, while start stops in its own `rpc_sync` until
    // middle has. Nothing below this line can happen before the end is done, and the end cannot see
    // anything that happens below.
    let mut parcel = world.rpc_sync("end", end, (parcel.stamped("middle")?,))?;
    if order == Order::AskThenAdd {
        parcel.value = (parcel.value + 1.0)?;
    }
    parcel.stamped("middle")
}

/// Doubles the value.
#[remote]
fn end(mut parcel: Parcel) -> Result<Parcel> {
    parcel.value = (parcel.value * 2.0)?;
    parcel.stamped("end")
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["start", "middle", "end"])?;
    let world = telegrad::init(&name)?;
    if name != "start" {
        return world.serve();
    }
    let add_first = send(&world, Order::AddThenAsk)?;
    println!("add, then ask: {}", path(&add_first));
    let ask_first = send(&world, Order::AskThenAdd)?;
    println!("ask, then add: {}", path(&ask_first));

    // (3 + 1) × 2 is not 3 × 2 + 1: what a stage does before its call is part of what the next
    // one sees, what it does after is not.
    assert_eq!(
        path(&add_first),
        "start 3 → middle 4 → end 8 → middle 8 → start 8"
    );
    assert_eq!(
        path(&ask_first),
        "start 3 → middle 3 → end 6 → middle 7 → start 7"
    );
    println!("the same two steps in another order: 8 and 7");
    world.shutdown()
}

fn send(world: &World, order: Order) -> Result<Parcel> {
    let parcel = Parcel {
        value: Tensor::new(3f32, &Device::Cpu)?,
        trail: Vec::new(),
    };
    world
        .rpc_sync("middle", middle, (parcel.stamped("start")?, order))?
        .stamped("start")
}

fn path(parcel: &Parcel) -> String {
    let stops: Vec<_> = parcel
        .trail
        .iter()
        .map(|(worker, value)| format!("{worker} {value}"))
        .collect();
    stops.join(" → ")
}
