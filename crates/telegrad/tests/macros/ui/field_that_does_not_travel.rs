use telegrad::Wire;

struct Handle;

#[derive(Wire)]
struct Message {
    handle: Handle,
}

fn main() {}
