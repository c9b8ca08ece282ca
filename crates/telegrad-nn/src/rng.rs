//! Random numbers.

use candle_core::{DType, Device, Shape, Tensor};

use crate::Result;

/// The increment of the state: the golden ratio as a fraction of 2⁶⁴, which is odd, so that every state occurs.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A generator of random numbers, SplitMix64. A seed gives the same numbers on every platform and in every release.
///
/// Not cryptographically secure.
///
/// ```
/// use telegrad_nn::Rng;
///
/// let (mut a, mut b) = (Rng::new(7), Rng::new(7));
/// assert_eq!(a.uniform(-1.0, 1.0), b.uniform(-1.0, 1.0));
/// ```
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    /// The second of a pair of normal numbers from the polar method.
    spare: Option<f64>,
}

impl Rng {
    /// Makes a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed,
            spare: None,
        }
    }

    /// Makes an independent generator, seeded from this one.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number from `low`, inclusive, to `high`, exclusive.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * unit(self.next_u64())
    }

    /// A number of the normal distribution.
    pub fn normal(&mut self, mean: f64, std: f64) -> f64 {
        mean + std * self.standard_normal()
    }

    /// A tensor of uniform numbers, in f32 on the CPU.
    ///
    /// # Errors
    /// When candle cannot make a tensor of that shape.
    pub fn uniform_tensor(&mut self, shape: impl Into<Shape>, low: f64, high: f64) -> Result<Tensor> {
        self.tensor(shape.into(), |rng| rng.uniform(low, high))
    }

    /// A tensor of normal numbers, in f32 on the CPU.
    ///
    /// # Errors
    /// As [`uniform_tensor`](Self::uniform_tensor).
    pub fn normal_tensor(&mut self, shape: impl Into<Shape>, mean: f64, std: f64) -> Result<Tensor> {
        self.tensor(shape.into(), |rng| rng.normal(mean, std))
    }

    fn tensor(&mut self, shape: Shape, mut draw: impl FnMut(&mut Self) -> f64) -> Result<Tensor> {
        let values = (0..shape.elem_count()).map(|_| draw(self) as f32).collect();
        let tensor = Tensor::from_vec::<_, f32>(values, shape, &Device::Cpu)?;
        debug_assert_eq!(tensor.dtype(), DType::F32);
        Ok(tensor)
    }

    /// Draws by the polar method. The logarithm is libm's, because that of the platform may round differently.
    fn standard_normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (self.uniform(-1.0, 1.0), self.uniform(-1.0, 1.0));
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(y * scale);
                return x * scale;
            }
        }
    }
}

/// The number at a position of a seed's sequence.
pub(crate) fn at(seed: u64, position: u64) -> u64 {
    mix(seed.wrapping_add(STEP.wrapping_mul(position.wrapping_add(1))))
}

/// Maps 53 of the bits to a number from 0 to 1, exclusive.
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut rng = Rng::new(1234567);
        let expected = [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ];
        assert_eq!([(); 5].map(|()| rng.next_u64()), expected);
        assert_eq!([0, 1, 2, 3, 4].map(|position| at(1234567, position)), expected);
    }

    #[test]
    fn normal_numbers_are_the_same_everywhere() {
        let mut rng = Rng::new(0);
        let drawn = [(); 3].map(|()| rng.standard_normal().to_bits());
        // 0.984…, -0.175…, -0.712…
        assert_eq!(
            drawn,
            [4607043058621490887, 13818876415947502553, 13827960978151866074]
        );
    }
}
