use telegrad::remote;

struct Handle;

#[remote]
fn take(handle: Handle) {
    let _ = handle;
}

fn main() {}
