//! Trajectories compared with torch's, from files written by `golden/make.py`.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor, WithDType};
use serde::Deserialize;
use serde_json::{Map, Value};
use telegrad_autograd::Param;
use telegrad_optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, CosineAnnealingLr, LinearLr, OneCycleLr, Optimizer,
    RMSprop, Rprop, Schedule, Sgd, StepLr, WarmUp,
};

#[derive(Deserialize)]
struct Optimizers {
    shapes: Vec<Vec<usize>>,
    steps: u64,
    kept: Vec<u64>,
    start: Vec<Vec<f64>>,
    defaults: BTreeMap<String, Map<String, Value>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    algorithm: String,
    options: Value,
    dtype: String,
    /// The values of all parameters after each kept step.
    values: Vec<Vec<Vec<f64>>>,
    /// The slots of each parameter after the last step.
    slots: Vec<BTreeMap<String, Vec<f64>>>,
}

/// The allowed relative error. For numbers below `floor` it is relative to `floor`: they are differences of numbers of
/// that size, with the same absolute error.
#[derive(Clone, Copy)]
struct Tolerance {
    relative: f64,
    floor: f64,
}

/// On some machines torch fuses products and sums, which rounds once instead of twice.
const SINGLE: Tolerance = Tolerance {
    relative: 2e-6,
    floor: 0.2,
};
const DOUBLE: Tolerance = Tolerance {
    relative: 1e-12,
    floor: 1e-3,
};

fn optimizers() -> Optimizers {
    serde_json::from_str(include_str!("golden/optimizers.json")).unwrap()
}

/// Replays the cases of one algorithm.
fn replay<A: Algorithm>() {
    let golden = optimizers();
    let cases: Vec<_> = golden
        .cases
        .iter()
        .filter(|case| case.algorithm == A::NAME)
        .collect();
    assert!(cases.len() >= 10, "{} cases of {}", cases.len(), A::NAME);
    for case in cases {
        match case.dtype.as_str() {
            "float32" => run::<A, f32>(&golden, case, SINGLE),
            _ => run::<A, f64>(&golden, case, DOUBLE),
        }
    }
}

fn run<A: Algorithm, T: WithDType>(golden: &Optimizers, case: &Case, tolerance: Tolerance) {
    let shown = format!("{} {} {}", case.algorithm, case.dtype, case.options);
    let options: A = serde_json::from_value(case.options.clone()).unwrap();
    let param = |(start, shape): (&Vec<f64>, &Vec<usize>)| {
        let start: Vec<T> = start.iter().map(|value| T::from_f64(*value)).collect();
        Param::new(&Tensor::from_vec(start, shape.as_slice(), &Device::Cpu).unwrap()).unwrap()
    };
    let params: Vec<Param> = golden.start.iter().zip(&golden.shapes).map(param).collect();
    let mut optimizer = Optimizer::new(params.clone(), options).unwrap();
    let mut kept = golden.kept.iter().zip(&case.values).peekable();
    for step in 1..=golden.steps {
        optimizer
            .step_with(|param| {
                let number = params.iter().position(|known| known.is(param)).unwrap();
                has_gradient(number, step)
                    .then(|| gradient::<T>(&param.value()))
                    .transpose()
            })
            .unwrap();
        if let Some((_, values)) = kept.next_if(|(kept, _)| **kept == step) {
            for (number, (param, expected)) in params.iter().zip(values).enumerate() {
                let what = format!("{shown}: parameter {number} after step {step}");
                close(&param.value(), expected, tolerance, &what);
            }
        }
    }
    assert!(kept.next().is_none());
    for (number, (param, slots)) in params.iter().zip(&case.slots).enumerate() {
        let state = optimizer.state(param).unwrap();
        assert_eq!(
            state.step(),
            (1..=golden.steps)
                .filter(|step| has_gradient(number, *step))
                .count() as u64
        );
        let mut names = state.names().to_vec();
        names.sort_unstable();
        assert!(
            names.iter().eq(slots.keys()),
            "{shown}: {names:?} and {:?}",
            slots.keys()
        );
        for (name, expected) in slots {
            let what = format!("{shown}: {name} of parameter {number}");
            close(&state.slot(name).unwrap().unwrap(), expected, tolerance, &what);
        }
    }
}

/// The gradient, as in `make.py`.
fn gradient<T: WithDType>(value: &Tensor) -> telegrad_rpc::Result<Tensor> {
    let of = |x: T| (x * T::from_f64(1.5) + T::from_f64(0.25)) - x / (x * x + T::from_f64(0.5));
    let elements: Vec<T> = value.flatten_all()?.to_vec1::<T>()?.into_iter().map(of).collect();
    Ok(Tensor::from_vec(elements, value.shape(), value.device())?)
}

/// Whether a parameter has a gradient in a step, as in `make.py`.
fn has_gradient(parameter: usize, step: u64) -> bool {
    match parameter {
        1 => step % 3 != 2,
        2 => step >= 4,
        _ => true,
    }
}

#[track_caller]
fn close(found: &Tensor, expected: &[f64], tolerance: Tolerance, what: &str) {
    let found = found
        .flatten_all()
        .unwrap()
        .to_dtype(DType::F64)
        .unwrap()
        .to_vec1::<f64>()
        .unwrap();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let off = (found - expected).abs() / expected.abs().max(tolerance.floor);
        assert!(
            off <= tolerance.relative,
            "{what}: {found:e} and not {expected:e}, off by {off:e}"
        );
    }
}

macro_rules! replays {
    ($($test:ident: $algorithm:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                replay::<$algorithm>();
            }
        )*
    };
}

replays! {
    sgd: Sgd,
    adam: Adam,
    adamw: AdamW,
    adamax: Adamax,
    adagrad: Adagrad,
    adadelta: Adadelta,
    rmsprop: RMSprop,
    rprop: Rprop,
}

#[test]
fn defaults_match_torch() {
    fn compare<A: Algorithm + Default>(golden: &Optimizers) {
        let theirs = &golden.defaults[A::NAME];
        let ours = serde_json::to_value(A::default()).unwrap();
        for (option, ours) in ours.as_object().unwrap() {
            // torch has integers for whole numbers.
            assert_eq!(floats(ours), floats(&theirs[option]), "`{option}` of {}", A::NAME);
        }
    }
    let golden = optimizers();
    compare::<Sgd>(&golden);
    compare::<Adam>(&golden);
    compare::<AdamW>(&golden);
    compare::<Adamax>(&golden);
    compare::<Adagrad>(&golden);
    compare::<Adadelta>(&golden);
    compare::<RMSprop>(&golden);
    compare::<Rprop>(&golden);
}

fn floats(value: &Value) -> Vec<f64> {
    match value {
        Value::Bool(flag) => vec![f64::from(*flag)],
        Value::Array(values) => values.iter().flat_map(floats).collect(),
        value => vec![value.as_f64().unwrap()],
    }
}

#[derive(Deserialize)]
struct Schedules {
    base: f64,
    cases: Vec<Curve>,
}

#[derive(Deserialize)]
struct Curve {
    schedule: String,
    options: Value,
    rates: Vec<f64>,
}

#[test]
fn schedules() {
    fn of<S: Schedule + for<'a> Deserialize<'a> + 'static>(options: &Value) -> Box<dyn Schedule> {
        Box::new(S::deserialize(options).unwrap())
    }
    let golden: Schedules = serde_json::from_str(include_str!("golden/schedules.json")).unwrap();
    assert!(golden.cases.len() > 12);
    for case in &golden.cases {
        let options = &case.options;
        let schedule = match case.schedule.as_str() {
            "step_lr" => of::<StepLr>(options),
            "cosine_annealing_lr" => of::<CosineAnnealingLr>(options),
            "linear_lr" => of::<LinearLr>(options),
            "one_cycle_lr" => of::<OneCycleLr>(&with_defaults(options)),
            "warm_up.step_lr" => of::<WarmUp<StepLr>>(options),
            "warm_up.cosine_annealing_lr" => of::<WarmUp<CosineAnnealingLr>>(options),
            other => panic!("{other}"),
        };
        schedule.check().unwrap();
        assert!(case.rates.len() >= 30);
        for (step, expected) in case.rates.iter().enumerate() {
            let found = schedule.lr(golden.base, step as u64);
            let off = (found - expected).abs();
            // torch multiplies from step to step.
            assert!(
                off <= 1e-14,
                "{} {options} at {step}: {found} and not {expected}",
                case.schedule
            );
        }
    }
}

/// The options, completed by torch's defaults.
fn with_defaults(options: &Value) -> Value {
    let number = |option: &str| &options[option];
    let cycle = OneCycleLr::new(
        number("max_lr").as_f64().unwrap(),
        number("total_steps").as_u64().unwrap(),
    );
    let mut all = serde_json::to_value(cycle).unwrap();
    for (option, value) in options.as_object().unwrap() {
        all[option] = value.clone();
    }
    all
}
