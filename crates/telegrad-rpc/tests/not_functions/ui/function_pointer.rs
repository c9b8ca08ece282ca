use telegrad_rpc::{Result, World, remote};

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

fn call(world: &World) -> Result<i64> {
    let pointer: fn(i64, i64) -> i64 = add;
    let _ = world.rpc_async("other", pointer, (1, 2))?;
    let _ = world.remote("other", pointer, (1, 2))?;
    world.rpc_sync("other", pointer, (1, 2))
}

fn main() {
    // Makes `call` reachable, so that its code is generated.
    let call: fn(&World) -> Result<i64> = call;
    std::hint::black_box(call);
}
