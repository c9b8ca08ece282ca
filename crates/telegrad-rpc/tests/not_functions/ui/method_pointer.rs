use telegrad_rpc::{RRef, Result, remote};

struct Net;

#[remote]
impl Net {
    fn size(&self) -> usize {
        0
    }
}

fn call(net: &RRef<Net>, offset: usize) -> Result<usize> {
    let pointer: fn(&Net) -> usize = Net::size;
    let closure = move |net: &Net| net.size() + offset;
    let _ = net.rpc_async(pointer, ())?;
    let _ = net.remote(closure, ())?;
    net.rpc_sync(closure, ())
}

fn main() {
    // Makes `call` reachable, so that its code is generated.
    let call: fn(&RRef<Net>, usize) -> Result<usize> = call;
    std::hint::black_box(call);
}
