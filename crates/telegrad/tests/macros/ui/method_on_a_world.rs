use telegrad::prelude::*;

struct Net;

#[remote]
impl Net {
    fn size(&self) -> usize {
        0
    }
}

fn call(world: &World) -> Result<usize> {
    world.rpc_sync("other", Net::size, ())
}

fn main() {
    let _ = call;
}
