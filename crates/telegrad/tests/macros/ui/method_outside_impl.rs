use telegrad::remote;

struct Net;

impl Net {
    #[remote]
    fn size(&self) -> usize {
        0
    }
}

fn main() {}
