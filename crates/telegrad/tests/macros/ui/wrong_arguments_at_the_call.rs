use telegrad::prelude::*;

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

fn call(world: &World) -> Result<()> {
    world.rpc_sync("other", add, (1, "two"))?;
    world.rpc_sync("other", add, (1,))?;
    let sum: String = world.rpc_sync("other", add, (1, 2))?;
    drop(sum);
    Ok(())
}

fn main() {
    let _ = call;
}
