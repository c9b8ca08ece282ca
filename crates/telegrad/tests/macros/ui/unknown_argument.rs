use telegrad::remote;

#[remote(fast)]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[remote(skip)]
fn sub(a: i64, b: i64) -> i64 {
    a - b
}

#[remote(name = 3)]
fn mul(a: i64, b: i64) -> i64 {
    a * b
}

fn main() {}
