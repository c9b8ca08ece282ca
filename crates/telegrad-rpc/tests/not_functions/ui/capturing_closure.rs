use telegrad_rpc::{Result, World};

fn call(world: &World, offset: i64) -> Result<i64> {
    let shift = move |n: i64| n + offset;
    let _ = world.rpc_async("other", shift, (1,))?;
    let _ = world.remote("other", shift, (1,))?;
    world.rpc_sync("other", shift, (1,))
}

fn main() {
    // Makes `call` reachable, so that its code is generated.
    let call: fn(&World, i64) -> Result<i64> = call;
    std::hint::black_box(call);
}
