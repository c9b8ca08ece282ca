use telegrad::remote;

struct Net;

#[remote]
impl Default for Net {
    fn default() -> Self {
        Net
    }
}

fn main() {}
