//! A small data set for examples and first experiments.

use std::io::Read;

use candle_core::{Device, Tensor};
use flate2::read::GzDecoder;
use telegrad_rpc::{Error, Result};

/// The compressed file, one image per line.
const DIGITS: &[u8] = include_bytes!("../data/digits.csv.gz");

/// Pixels of an image.
const PIXELS: usize = 64;

/// One of this many images is in the test set.
const TEST_SHARE: usize = 5;

/// Images with their labels.
#[derive(Clone, Debug)]
pub struct Images {
    /// One row of 64 numbers from 0 to 1 for each image, in f32.
    pub pixels: Tensor,
    /// The digits, in u32.
    pub labels: Tensor,
}

impl Images {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.elem_count()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The images at `indices`.
    ///
    /// # Errors
    /// When an index is out of range.
    pub fn batch(&self, indices: &[u32]) -> Result<Self> {
        let indices = Tensor::new(indices, &Device::Cpu)?;
        Ok(Self {
            pixels: self.pixels.index_select(&indices, 0)?,
            labels: self.labels.index_select(&indices, 0)?,
        })
    }
}

/// Handwritten digits of 8 × 8 pixels, as a training set and a test set.
///
/// Every fifth image is in the test set. The data is from UCI, by E. Alpaydin and C. Kaynak, under CC BY 4.0.
///
/// ```
/// let (train, test) = telegrad::data::digits()?;
/// assert_eq!((train.len(), test.len()), (1437, 360));
/// assert_eq!(train.pixels.dims(), [1437, 64]);
/// # Ok::<(), telegrad::Error>(())
/// ```
///
/// # Errors
/// When the embedded file is damaged.
pub fn digits() -> Result<(Images, Images)> {
    let mut text = String::new();
    GzDecoder::new(DIGITS)
        .read_to_string(&mut text)
        .map_err(Error::other)?;
    let mut parts = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for (number, line) in text.lines().enumerate() {
        let (pixels, labels) = &mut parts[usize::from(number % TEST_SHARE == 0)];
        let before = pixels.len();
        for field in line.split(',') {
            let value: u8 = field.trim().parse().map_err(Error::other)?;
            pixels.push(f32::from(value) / 16.0);
        }
        let label = pixels.pop().map_or(0, |label| (label * 16.0) as u32);
        if pixels.len() - before != PIXELS {
            return Err(Error::other(format!(
                "line {} of the embedded digits does not have {PIXELS} pixels",
                number + 1
            )));
        }
        labels.push(label);
    }
    let images = |(pixels, labels): (Vec<f32>, Vec<u32>)| -> Result<Images> {
        let count = labels.len();
        Ok(Images {
            pixels: Tensor::from_vec(pixels, (count, PIXELS), &Device::Cpu)?,
            labels: Tensor::from_vec(labels, count, &Device::Cpu)?,
        })
    };
    let [train, test] = parts;
    Ok((images(train)?, images(test)?))
}
