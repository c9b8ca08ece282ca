use telegrad_rpc::{Result, World};

fn call(world: &World, offset: i64) -> Result<i64> {
    let shift = move |n: i64| n + offset;
    let _ = world.rpc_async("other", shift, (1,))?;
    let _ = world.remote("other", shift, (1,))?;
    world.rpc_sync("other", shift, (1,))
}

fn main() {
    // Its code is generated only if something could call it.
    let call: fn(&World, i64) -> Result<i64> = call;
    std::hint::black_box(call);
}
