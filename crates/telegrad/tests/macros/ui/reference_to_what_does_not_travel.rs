use telegrad::prelude::*;

struct Net;

#[remote]
impl Net {
    fn new() -> Result<Self> {
        Ok(Net)
    }
}

// It can be referred to, but neither fetched nor kept as something that could be.
fn call(world: &World) -> Result<Net> {
    let net = world.remote("other", Net::new, ())?;
    net.to_here()
}

fn keep(world: &World) -> Result<RRef<Net>> {
    RRef::new(world, Net)
}

fn main() {
    let _ = (call, keep);
}
