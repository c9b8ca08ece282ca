//! Optimisers of local parameters, independent of the algorithm.

use candle_core::{DType, Device, Tensor};
use telegrad_autograd::Param;
use telegrad_optim::{Adam, OptimError, Optimizer, ParamGroup, Sgd, squared_norm};
use telegrad_rpc::{Error, Result};

fn param(values: &[f32]) -> Param {
    Param::new(&Tensor::new(values, &Device::Cpu).unwrap()).unwrap()
}

fn elements(param: &Param) -> Vec<f32> {
    param.value().flatten_all().unwrap().to_vec1().unwrap()
}

fn sgd(lr: f64) -> Sgd {
    Sgd { lr, ..Sgd::default() }
}

#[track_caller]
fn error<T>(result: Result<T>) -> OptimError {
    match result.err().expect("an error") {
        Error::Optim(error) => *error,
        other => panic!("{other}"),
    }
}

fn ones(param: &Param) -> Result<Option<Tensor>> {
    Ok(Some(param.value().ones_like()?))
}

#[test]
fn groups_have_their_own_options() {
    let (a, b) = (param(&[0.0]), param(&[0.0]));
    let mut optimizer = Optimizer::with_groups([
        ParamGroup {
            params: vec![a.clone()],
            options: sgd(1.0),
        },
        ParamGroup {
            params: vec![],
            options: sgd(9.0),
        },
        ParamGroup {
            params: vec![b.clone()],
            options: sgd(0.5),
        },
    ])
    .unwrap();
    optimizer.step_with(ones).unwrap();
    assert_eq!((elements(&a), elements(&b)), (vec![-1.0], vec![-0.5]));
    optimizer.set_lr(2, 0.25).unwrap();
    optimizer.step_with(ones).unwrap();
    assert_eq!((elements(&a), elements(&b)), (vec![-2.0], vec![-0.75]));
    assert_eq!([optimizer.lr(0).unwrap(), optimizer.lr(2).unwrap()], [1.0, 0.25]);
    assert_eq!(optimizer.groups().len(), 3);
    assert!(
        optimizer
            .params()
            .zip([&a, &b])
            .all(|(found, expected)| found.is(expected))
    );
}

#[test]
fn a_group_added_later_is_optimised() {
    let (a, b) = (param(&[0.0]), param(&[0.0]));
    let mut optimizer = Optimizer::new([a.clone()], sgd(1.0)).unwrap();
    optimizer.step_with(ones).unwrap();
    let group = ParamGroup {
        params: vec![b.clone()],
        options: sgd(2.0),
    };
    assert_eq!(optimizer.add_group(group).unwrap(), 1);
    optimizer.step_with(ones).unwrap();
    assert_eq!((elements(&a), elements(&b)), (vec![-2.0], vec![-2.0]));
}

#[test]
fn parameters_without_a_gradient_stay_and_keep_their_count() {
    let (a, b) = (param(&[1.0]), param(&[1.0]));
    let mut optimizer = Optimizer::new([a.clone(), b.clone()], Adam::default()).unwrap();
    for step in 0..6 {
        optimizer
            .step_with(|param| {
                if param.is(&b) && step % 2 == 0 {
                    Ok(None)
                } else {
                    ones(param)
                }
            })
            .unwrap();
    }
    assert_eq!((a.version(), b.version()), (6, 3));
    assert_eq!(optimizer.state(&a).unwrap().step(), 6);
    assert_eq!(optimizer.state(&b).unwrap().step(), 3);
    let alone = param(&[1.0]);
    assert!(optimizer.state(&alone).is_none());
    let mut other = Optimizer::new([alone.clone()], Adam::default()).unwrap();
    assert!(other.state(&alone).is_none());
    for _ in 0..3 {
        other.step_with(ones).unwrap();
    }
    assert_eq!(elements(&alone), elements(&b));
}

#[test]
fn gradients_of_candles_backward_make_a_step() {
    let (a, b) = (param(&[1.0, 2.0]), param(&[3.0]));
    let unused = param(&[5.0]);
    let mut optimizer = Optimizer::new([a.clone(), b.clone(), unused.clone()], sgd(0.5)).unwrap();
    // Includes a version that is replaced before the pass.
    let early = a.tensor();
    optimizer.step_with(ones).unwrap();
    assert_eq!(elements(&a), [0.5, 1.5]);
    let squares = (early.sqr().unwrap() + a.tensor().sqr().unwrap()).unwrap();
    let loss = squares.sum_all().unwrap().add(&b.tensor().sum_all().unwrap());
    optimizer.step(&loss.unwrap().backward().unwrap()).unwrap();
    // Gradients 2 · 1 + 2 · 0.5 and 2 · 2 + 2 · 1.5, with a learning rate of 0.5.
    assert_eq!(elements(&a), [-1.0, -2.0]);
    assert_eq!((elements(&b), elements(&unused)), (vec![2.0], vec![4.5]));
    assert_eq!(unused.version(), 1, "the loss does not depend on it");
}

#[test]
fn gradients_of_other_parameters_are_refused() {
    let (a, b) = (param(&[1.0]), param(&[1.0]));
    let mut optimizer = Optimizer::new([a.clone()], sgd(0.5)).unwrap();
    for loss in [b.tensor(), (b.tensor() * a.value()).unwrap()] {
        let refused = error(optimizer.step(&loss.sum_all().unwrap().backward().unwrap()));
        assert!(
            matches!(refused, OptimError::NoGradients { count: 1 }),
            "{refused}"
        );
    }
    assert_eq!(a.version(), 0);
}

#[test]
fn a_snapshot_is_unaffected_by_a_step() {
    let a = param(&[1.0, 2.0]);
    let read = a.tensor();
    Optimizer::new([a.clone()], sgd(1.0))
        .unwrap()
        .step_with(ones)
        .unwrap();
    assert_eq!(read.to_vec1::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(elements(&a), [0.0, 1.0]);
    assert!(a.tensor().is_variable());
}

/// A transposed tensor, and a view of every second row.
fn views(values: &[f32]) -> [Tensor; 2] {
    let tensor = Tensor::from_slice(values, (4, 3), &Device::Cpu).unwrap();
    let rows = tensor
        .reshape((2, 2, 3))
        .unwrap()
        .narrow(1, 1, 1)
        .unwrap()
        .squeeze(1)
        .unwrap();
    [tensor.t().unwrap(), rows]
}

#[test]
fn views_are_read_in_row_major_order() {
    let values: Vec<f32> = (0..12).map(|index| index as f32).collect();
    let gradients: Vec<f32> = values.iter().map(|value| value * value).collect();
    for (value, gradient) in views(&values).into_iter().zip(views(&gradients)) {
        assert!(!value.is_contiguous() && !gradient.is_contiguous());
        let param = Param::new(&value).unwrap();
        let mut optimizer = Optimizer::new([param.clone()], sgd(2.0)).unwrap();
        optimizer.step_with(|_| Ok(Some(gradient.clone()))).unwrap();
        let expected = (value - (gradient.clone() * 2.0).unwrap()).unwrap();
        assert_eq!(
            param.value().to_vec2::<f32>().unwrap(),
            expected.to_vec2::<f32>().unwrap()
        );
        let squares = gradient
            .sqr()
            .unwrap()
            .sum_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        assert_eq!(squared_norm([&gradient]).unwrap(), f64::from(squares));
    }
}

#[test]
fn sixteen_bit_parameters_are_stepped_in_f32_and_rounded() {
    let start: Vec<f32> = (0..40).map(|index| index as f32 / 7.0 - 2.0).collect();
    for dtype in [DType::F16, DType::BF16] {
        let value = Tensor::new(start.as_slice(), &Device::Cpu)
            .unwrap()
            .to_dtype(dtype)
            .unwrap();
        let narrow = Param::new(&value).unwrap();
        let wide = Param::new(&value.to_dtype(DType::F32).unwrap()).unwrap();
        let options = Adam {
            lr: 0.05,
            ..Adam::default()
        };
        let mut optimizer = Optimizer::new([narrow.clone()], options.clone()).unwrap();
        let mut reference = Optimizer::new([wide.clone()], options).unwrap();
        for _ in 0..5 {
            let gradient = narrow.value().sqr().unwrap();
            optimizer.step_with(|_| Ok(Some(gradient.clone()))).unwrap();
            reference
                .step_with(|_| Ok(Some(gradient.to_dtype(DType::F32)?)))
                .unwrap();
            let rounded = wide.value().to_dtype(dtype).unwrap();
            // The reference continues from the rounded value.
            wide.set(&rounded.to_dtype(DType::F32).unwrap()).unwrap();
            let wide = elements(&wide);
            let narrow = narrow
                .value()
                .to_dtype(DType::F32)
                .unwrap()
                .to_vec1::<f32>()
                .unwrap();
            assert_eq!(narrow, wide);
        }
        assert_eq!(narrow.dtype(), dtype);
        let (state, expected) = (optimizer.state(&narrow).unwrap(), reference.state(&wide).unwrap());
        assert_eq!(state, expected);
        assert_eq!(state.slot("exp_avg").unwrap().unwrap().dtype(), DType::F32);
        assert!(state.slot("nothing").unwrap().is_none());
    }
}

#[test]
fn empty_parameters_can_be_optimised() {
    let empty = Param::new(&Tensor::zeros((0, 3), DType::F32, &Device::Cpu).unwrap()).unwrap();
    let mut optimizer = Optimizer::new([empty.clone()], Adam::default()).unwrap();
    optimizer.step_with(ones).unwrap();
    assert_eq!(empty.version(), 1);
}

#[test]
fn missing_duplicate_and_integer_parameters_are_refused() {
    let none = Optimizer::new([], Sgd::default());
    assert!(matches!(error(none), OptimError::NoParameters));
    let empty = Optimizer::with_groups([ParamGroup {
        params: vec![],
        options: Sgd::default(),
    }]);
    assert!(matches!(error(empty), OptimError::NoParameters));

    let a = Param::named("a", &Tensor::new(1f32, &Device::Cpu).unwrap()).unwrap();
    let twice = error(Optimizer::new(
        [a.clone(), param(&[1.0]), a.clone()],
        Sgd::default(),
    ));
    assert!(
        matches!(&twice, OptimError::Duplicate { parameter } if parameter == "parameter `a`"),
        "{twice}"
    );
    let mut optimizer = Optimizer::new([a.clone()], Sgd::default()).unwrap();
    let again = optimizer.add_group(ParamGroup {
        params: vec![param(&[1.0]), a],
        options: Sgd::default(),
    });
    assert!(matches!(error(again), OptimError::Duplicate { .. }));
    assert_eq!(optimizer.groups().len(), 1);

    let whole = Param::new(&Tensor::new(&[1u32], &Device::Cpu).unwrap()).unwrap();
    let whole = error(Optimizer::new([param(&[1.0]), whole], Sgd::default()));
    assert_eq!(
        whole.to_string(),
        "parameter 1 of group 0 has elements of type U32, which cannot be optimised: use f16, bf16, f32 or f64"
    );

    let bad = error(Optimizer::new([param(&[1.0])], sgd(-1.0)));
    assert!(
        matches!(
            bad,
            OptimError::Option {
                option: "lr",
                value: -1.0,
                ..
            }
        ),
        "{bad}"
    );
}

#[test]
fn a_wrong_gradient_changes_no_parameter() {
    let (a, b) = (param(&[1.0]), param(&[1.0, 2.0]));
    let mut optimizer = Optimizer::new([a.clone(), b.clone()], Adam::default()).unwrap();
    let cpu = &Device::Cpu;
    let given = |wrong: Tensor| {
        let b = b.clone();
        move |param: &Param| {
            if param.is(&b) {
                Ok(Some(wrong.clone()))
            } else {
                ones(param)
            }
        }
    };
    let shape = error(optimizer.step_with(given(Tensor::new(&[1f32], cpu).unwrap())));
    assert_eq!(
        shape.to_string(),
        "parameter 1 of group 0 has shape [2], its gradient [1]"
    );
    assert!(matches!(shape, OptimError::GradientShape { .. }));
    let dtype = error(optimizer.step_with(given(Tensor::new(&[1f64, 2.0], cpu).unwrap())));
    assert_eq!(
        dtype.to_string(),
        "parameter 1 of group 0 has elements of type F32, its gradient F64"
    );
    let failing = |param: &Param| {
        if param.is(&b) {
            Err(Error::other("lost"))
        } else {
            ones(param)
        }
    };
    assert_eq!(optimizer.step_with(failing).unwrap_err().to_string(), "lost");
    for scale in [f64::NAN, f64::INFINITY] {
        assert!(matches!(
            error(optimizer.step_scaled(scale, ones)),
            OptimError::Scale(_)
        ));
    }
    assert_eq!((a.version(), b.version()), (0, 0));
    assert!(optimizer.state(&a).is_none());
}

#[test]
fn valid_options_are_replaced_and_others_refused() {
    let momentum = Sgd {
        lr: 0.1,
        momentum: 0.9,
        ..Sgd::default()
    };
    let mut optimizer = Optimizer::new([param(&[1.0])], momentum.clone()).unwrap();
    assert!(matches!(
        error(optimizer.set_lr(1, 0.1)),
        OptimError::NoGroup { group: 1, groups: 1 }
    ));
    assert!(matches!(
        error(optimizer.lr(3)),
        OptimError::NoGroup { group: 3, groups: 1 }
    ));
    for lr in [-0.1, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            error(optimizer.set_lr(0, lr)),
            OptimError::Option { option: "lr", .. }
        ));
    }
    assert_eq!(optimizer.groups()[0].options, momentum);
    let without = error(optimizer.set_options(0, sgd(0.1)));
    assert_eq!(
        without.to_string(),
        "sgd: the new options need another state than the old ones: make a new optimiser"
    );
    let decayed = Sgd {
        weight_decay: 0.5,
        ..momentum
    };
    optimizer.set_options(0, decayed.clone()).unwrap();
    assert_eq!(optimizer.groups()[0].options, decayed);
}

#[test]
fn optimisers_are_send_and_sync() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Optimizer<Sgd>>();
    shared::<Optimizer<Adam>>();
}
