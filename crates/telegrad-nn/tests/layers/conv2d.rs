use candle_core::{DType, Device, Tensor};
use telegrad_nn::{Conv2d, Conv2dOptions, Module, NnError, Pair, Rng, conv2d};

use crate::gradient::{check, check_module, near, numbers, random};

/// Shape of the images, shape of the weight, and options.
fn cases() -> Vec<([usize; 4], [usize; 4], Conv2dOptions)> {
    let slide =
        |stride: (usize, usize), padding: (usize, usize), dilation: (usize, usize), groups| Conv2dOptions {
            stride: stride.into(),
            padding: padding.into(),
            dilation: dilation.into(),
            groups,
            bias: true,
        };
    vec![
        ([2, 1, 4, 4], [1, 1, 1, 1], slide((1, 1), (0, 0), (1, 1), 1)),
        ([2, 2, 5, 4], [3, 2, 3, 2], slide((1, 1), (0, 0), (1, 1), 1)),
        ([1, 2, 4, 4], [2, 2, 3, 3], slide((1, 1), (1, 1), (1, 1), 1)),
        // Rows and columns have different remainders.
        ([1, 2, 6, 7], [2, 2, 3, 3], slide((2, 2), (1, 1), (1, 1), 1)),
        ([1, 1, 7, 8], [2, 1, 2, 3], slide((3, 2), (0, 2), (1, 1), 1)),
        ([1, 2, 7, 7], [2, 2, 3, 3], slide((1, 1), (2, 2), (2, 2), 1)),
        ([1, 1, 8, 9], [1, 1, 2, 3], slide((2, 3), (1, 2), (3, 2), 1)),
        ([2, 4, 4, 4], [6, 2, 2, 2], slide((1, 1), (1, 0), (1, 1), 2)),
        ([1, 3, 5, 5], [3, 1, 3, 3], slide((2, 2), (1, 1), (1, 1), 3)),
        // The kernel is larger than the image, and some of its elements are never over a pixel.
        ([1, 1, 1, 1], [1, 1, 5, 5], slide((1, 1), (2, 2), (1, 1), 1)),
    ]
}

/// The convolution by its definition.
fn plain(x: &Tensor, weight: &Tensor, bias: &Tensor, options: Conv2dOptions) -> Vec<f64> {
    let [(n, c, h, w), (outputs, depth, rows, columns)] = [x, weight].map(|t| t.dims4().unwrap());
    let (x, weight, bias) = (numbers(x), numbers(weight), numbers(bias));
    let places = |size: usize, kernel: usize, of: fn(Pair) -> usize| {
        (size + 2 * of(options.padding) - of(options.dilation) * (kernel - 1) - 1) / of(options.stride) + 1
    };
    let (down, across) = (places(h, rows, |p| p.rows), places(w, columns, |p| p.columns));
    let mut out = Vec::new();
    for image in 0..n {
        for output in 0..outputs {
            let group = output / (outputs / options.groups);
            for top in 0..down {
                for left in 0..across {
                    let mut sum = bias[output];
                    for channel in 0..depth {
                        for row in 0..rows {
                            for column in 0..columns {
                                let y = (top * options.stride.rows + row * options.dilation.rows)
                                    .wrapping_sub(options.padding.rows);
                                let z = (left * options.stride.columns + column * options.dilation.columns)
                                    .wrapping_sub(options.padding.columns);
                                if y < h && z < w {
                                    let source = group * depth + channel;
                                    sum += x[((image * c + source) * h + y) * w + z]
                                        * weight
                                            [((output * depth + channel) * rows + row) * columns + column];
                                }
                            }
                        }
                    }
                    out.push(sum);
                }
            }
        }
    }
    out
}

#[test]
fn values_match_the_definition() {
    for (x, weight, options) in cases() {
        let (x, bias) = (random(&x, 1), random(&weight[..1], 3));
        let weight = random(&weight, 2);
        let expected = plain(&x, &weight, &bias, options);
        near(
            &conv2d(&x, &weight, Some(&bias), options).unwrap(),
            &expected,
            1e-12,
        );
        let [x, weight, bias] = [&x, &weight, &bias].map(|t| t.to_dtype(DType::F32).unwrap());
        near(
            &conv2d(&x, &weight, Some(&bias), options).unwrap(),
            &expected,
            1e-5,
        );
    }
}

#[test]
fn values_match_candle() {
    let (x, weight) = (random(&[2, 4, 9, 9], 1), random(&[6, 2, 3, 3], 2));
    let options = Conv2dOptions {
        stride: 2.into(),
        padding: 1.into(),
        groups: 2,
        ..Conv2dOptions::default()
    };
    let theirs = x.conv2d(&weight, 1, 2, 1, 2).unwrap();
    let ours = conv2d(&x, &weight, None, options).unwrap();
    assert_eq!(ours.dims(), theirs.dims());
    near(&ours, &numbers(&theirs), 1e-12);
}

#[test]
fn gradients_match_finite_differences() {
    for (x, weight, options) in cases() {
        let (x, bias) = (random(&x, 1), random(&weight[..1], 3));
        let weight = random(&weight, 2);
        check(&[x.clone(), weight.clone(), bias.clone()], |inputs| {
            conv2d(&inputs[0], &inputs[1], Some(&inputs[2]), options)
        });
        check(&[x.clone(), weight.clone()], |inputs| {
            conv2d(&inputs[0], &inputs[1], None, options)
        });
    }
    let (x, weight, options) = cases().swap_remove(3);
    let layer = Conv2d::from_tensors(&random(&weight, 2), Some(&random(&weight[..1], 3)), options).unwrap();
    check_module(&layer, &random(&x, 1));
}

#[test]
fn wrong_shapes_and_options_are_errors() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let mut rng = Rng::new(0);
    let options = Conv2dOptions::default();
    let layer = Conv2d::new(2, 4, 3, options, &mut rng).unwrap();
    for shape in [&[2, 8, 8][..], &[1, 3, 8, 8], &[1, 2, 2, 8], &[1, 2, 8, 0]] {
        assert!(
            matches!(
                layer.forward(&zeros(shape)).err().unwrap().nn(),
                Some(NnError::Input { .. })
            ),
            "{shape:?}"
        );
    }
    let error = layer.forward(&zeros(&[1, 2, 2, 8])).unwrap_err().to_string();
    assert_eq!(
        error,
        "Conv2d takes images with at least 3 rows, not one of shape [1, 2, 2, 8]"
    );
    assert_eq!(layer.forward(&zeros(&[0, 2, 8, 8])).unwrap().dims(), [0, 4, 6, 6]);
    for groups in [0, 3] {
        let options = Conv2dOptions { groups, ..options };
        assert!(matches!(
            Conv2d::new(2, 4, 3, options, &mut rng).err().unwrap().nn(),
            Some(NnError::Options { .. })
        ));
    }
    let no_stride = Conv2dOptions {
        stride: 0.into(),
        ..options
    };
    let layer = Conv2d::new(2, 4, 3, no_stride, &mut rng).unwrap();
    assert!(matches!(
        layer.forward(&zeros(&[1, 2, 8, 8])).err().unwrap().nn(),
        Some(NnError::Options { .. })
    ));
}
