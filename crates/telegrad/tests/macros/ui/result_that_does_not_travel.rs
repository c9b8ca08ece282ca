use telegrad::prelude::*;

struct Net;

#[remote]
impl Net {
    fn new() -> Result<Self> {
        Ok(Net)
    }
}

// It can be made remotely, but not fetched.
fn call(world: &World) -> Result<Net> {
    world.rpc_sync("other", Net::new, ())
}

fn main() {
    let _ = call;
}
