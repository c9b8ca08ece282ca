use telegrad::remote;

struct Net;

#[remote]
impl Net {
    // A value that does not travel can only be made with a `Result` around it.
    fn new() -> Self {
        Net
    }
}

fn main() {}
