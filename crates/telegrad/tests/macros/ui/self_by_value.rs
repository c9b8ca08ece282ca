use telegrad::remote;

struct Net;

#[remote]
impl Net {
    fn finish(self) {}
}

fn main() {}
