use telegrad::Wire;

#[derive(Wire)]
union Bits {
    int: u32,
    float: f32,
}

fn main() {}
