use telegrad::remote;

#[remote]
struct Net;

fn main() {}
