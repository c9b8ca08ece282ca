use telegrad::Wire;

#[derive(Wire)]
struct Borrowed<'a> {
    name: &'a str,
}

fn main() {}
