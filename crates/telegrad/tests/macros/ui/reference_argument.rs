use telegrad::remote;

#[remote]
fn length(text: &str) -> usize {
    text.len()
}

#[remote]
fn sum(values: &[f32]) -> f32 {
    values.iter().sum()
}

fn main() {}
