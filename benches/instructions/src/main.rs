//! Two workers whose instructions are counted: `a` makes empty calls to `b`.
//!
//! Usage: `instructions NAME ADDRESS CALLS`; see the script `run`.

use telegrad_rpc::{Options, Result, remote};

#[remote]
fn nothing(value: i64) -> i64 {
    value
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let [name, address, calls] = std::array::from_fn(|_| args.next().expect("NAME ADDRESS CALLS"));
    let calls: i64 = calls.parse().expect("a number of calls");
    let rank = u32::from(name == "b");
    let mut options = Options::default();
    options.init_method = format!("{address}?rank={rank}&world_size=2");
    // Instructions of polling are not part of a call.
    options.spin = std::time::Duration::ZERO;
    let world = telegrad_rpc::init_with(&name, options)?;
    if rank == 0 {
        for call in 0..calls {
            assert_eq!(world.rpc_sync("b", nothing, (call,))?, call);
        }
    }
    world.shutdown()
}
