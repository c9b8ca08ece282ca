//! Start calls middle, middle calls end, and the result returns the same way.
//!
//! ```sh
//! cargo run --release --example chain
//! ```
//!
//! builds the program and starts all processes. The launcher can start it afterwards, too:
//!
//! ```sh
//! cargo run --release -- run --names start,middle,end -- target/release/examples/chain
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use telegrad::prelude::*;

/// The value that is sent. With this `derive`, any type made of sendable values can be sent.
#[derive(Wire)]
struct Parcel {
    value: Tensor,
    /// Each sender with the value at that time. Lines printed by three processes may appear in any order; this list has the
    /// order of events.
    trail: Vec<(String, f32)>,
}

impl Parcel {
    /// Adds this worker's name, just before the value is passed on.
    fn stamped(mut self, by: &str) -> Result<Self> {
        self.trail.push((by.to_owned(), self.value.to_scalar()?));
        Ok(self)
    }
}

/// The two actions of middle, in either order.
#[derive(Wire, Clone, Copy, PartialEq)]
enum Order {
    AddThenAsk,
    AskThenAdd,
}

/// Adds one, and calls the end to double the value.
#[remote]
fn middle(mut parcel: Parcel, order: Order) -> Result<Parcel> {
    // The world of the current call; this worker is `middle`.
    let world = World::current()?;
    if order == Order::AddThenAsk {
        parcel.value = (parcel.value + 1.0)?;
    }
    // Middle blocks here until the end has answered, and start in its own `rpc_sync` until middle has. The code below runs
    // after the end is done, so the end cannot observe its effects.
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

    // (3 + 1) × 2 is not 3 × 2 + 1: the next stage sees changes from before the call, not from after it.
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
