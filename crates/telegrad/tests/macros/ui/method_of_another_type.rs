use telegrad::prelude::*;

struct Net;

struct Other;

#[remote]
impl Other {
    fn size(&self) -> usize {
        0
    }
}

#[remote]
fn free() {}

fn call(net: &RRef<Net>) -> Result<usize> {
    net.rpc_sync(free, ())?;
    net.rpc_sync(Other::size, ())
}

fn main() {
    let _ = call;
}
