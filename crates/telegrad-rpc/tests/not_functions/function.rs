use telegrad_rpc::{Result, World, remote};

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

fn main() {
    let call: fn(&World) -> Result<i64> = |world| world.rpc_sync("other", add, (1, 2));
    std::hint::black_box(call);
}
