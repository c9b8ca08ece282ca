//! Saving and resuming of optimisers.

mod refused;

use std::fs;
use std::io::Read;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use safetensors::SafeTensors;
use telegrad_autograd::Param;
use telegrad_optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, OptimError, Optimizer, ParamGroup, RMSprop, Rprop, Sgd,
};
use telegrad_rpc::{Error, Result};

/// Parameters of every element type and of several shapes, in two groups.
fn groups<A: Algorithm>(options: &A) -> Vec<ParamGroup<A>> {
    let param = |name: &str, dtype: DType, shape: &[usize], offset: f64| {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count)
            .map(|index| ((index * 7) % 11) as f64 / 3.7 - offset)
            .collect();
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
        Param::named(name, &tensor.to_dtype(dtype).unwrap()).unwrap()
    };
    let first = vec![
        param("weight", DType::F32, &[3, 4], 1.1),
        param("", DType::F64, &[5], 0.3),
    ];
    let second = vec![
        param("", DType::BF16, &[2, 2], 0.9),
        param("", DType::F16, &[], -0.7),
        param("", DType::F32, &[0], 0.0),
        // Never has a gradient.
        param("", DType::F32, &[2], 0.4),
    ];
    let mut other = options.clone();
    // A number that needs all its digits.
    other.set_lr((0.1 + 0.2) / 7.0);
    vec![
        ParamGroup {
            params: first,
            options: options.clone(),
        },
        ParamGroup {
            params: second,
            options: other,
        },
    ]
}

fn run<A: Algorithm>(optimizer: &mut Optimizer<A>, steps: std::ops::Range<u64>) {
    for step in steps {
        let last = optimizer.params().last().unwrap().clone();
        let gradient = |param: &Param| {
            let skipped = param.is(&last) || (param.dtype() == DType::F64 && step % 3 == 1);
            let value = param.value();
            Ok(if skipped {
                None
            } else {
                Some(((&value * 1.5)? - (value.sqr()? + 1.0)?.recip()?)?)
            })
        };
        optimizer.step_with(gradient).unwrap();
    }
}

fn bits<A: Algorithm>(optimizer: &Optimizer<A>) -> Vec<Vec<u64>> {
    let of = |param: &Param| {
        // f64 represents all narrower types exactly.
        let wide = param.value().flatten_all().unwrap().to_dtype(DType::F64).unwrap();
        wide.to_vec1::<f64>()
            .unwrap()
            .into_iter()
            .map(f64::to_bits)
            .collect()
    };
    optimizer.params().map(of).collect()
}

#[track_caller]
fn error<T>(result: Result<T>) -> OptimError {
    match result.err().expect("an error") {
        Error::Optim(error) => *error,
        other => panic!("{other}"),
    }
}

fn resumes<A: Algorithm>(options: A) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut straight = Optimizer::with_groups(groups(&options)).unwrap();
    run(&mut straight, 0..20);

    let mut first = Optimizer::with_groups(groups(&options)).unwrap();
    run(&mut first, 0..10);
    first.save_with_params(&path).unwrap();
    // The file overrides the options.
    let mut another = options;
    another.set_lr(123.0);
    let mut second = Optimizer::with_groups(groups(&another)).unwrap();
    second.load_with_params(&path).unwrap();
    assert_eq!(bits(&second), bits(&first));
    run(&mut second, 10..20);

    let name = A::NAME;
    assert_eq!(bits(&second), bits(&straight), "{name}");
    for (ours, expected) in second.params().zip(straight.params()) {
        assert_eq!(second.state(ours), straight.state(expected), "{name}");
    }
    for (ours, expected) in second.groups().iter().zip(straight.groups()) {
        assert!(ours.options == expected.options, "{name}");
    }
    // Without the state the values differ.
    let options = &straight.groups()[0].options;
    let mut stateless = Optimizer::with_groups(groups(options)).unwrap();
    for (param, value) in stateless.params().zip(first.params()) {
        param.set(&value.value()).unwrap();
    }
    run(&mut stateless, 10..20);
    if !options.slots().is_empty() {
        assert_ne!(bits(&stateless), bits(&straight), "{name}");
    }
}

#[test]
fn every_algorithm_resumes_bit_for_bit() {
    resumes(Sgd {
        lr: 0.03,
        ..Sgd::default()
    });
    resumes(Sgd {
        lr: 0.03,
        momentum: 0.9,
        dampening: 0.2,
        ..Sgd::default()
    });
    resumes(Adam {
        lr: 0.01,
        ..Adam::default()
    });
    resumes(Adam {
        lr: 0.01,
        amsgrad: true,
        weight_decay: 0.1,
        ..Adam::default()
    });
    resumes(AdamW {
        lr: 0.01,
        ..AdamW::default()
    });
    resumes(Adamax {
        lr: 0.01,
        ..Adamax::default()
    });
    resumes(Adagrad {
        lr: 0.1,
        lr_decay: 0.1,
        initial_accumulator_value: 0.2,
        ..Adagrad::default()
    });
    resumes(Adadelta {
        lr: 2.0,
        ..Adadelta::default()
    });
    resumes(RMSprop::default());
    resumes(RMSprop {
        momentum: 0.5,
        centered: true,
        eps: 0.01,
        ..RMSprop::default()
    });
    resumes(Rprop::default());
}

fn adam() -> Optimizer<Adam> {
    let mut optimizer = Optimizer::with_groups(groups(&Adam::default())).unwrap();
    run(&mut optimizer, 0..3);
    optimizer
}

#[test]
fn values_are_loaded_on_request_only() {
    let folder = tempfile::tempdir().unwrap();
    let (with, without) = (folder.path().join("with"), folder.path().join("without"));
    let optimizer = adam();
    optimizer.save(&without).unwrap();
    optimizer.save_with_params(&with).unwrap();

    let mut fresh = Optimizer::with_groups(groups(&Adam::default())).unwrap();
    let start = bits(&fresh);
    let missing = error(fresh.load_with_params(&without));
    assert!(
        matches!(&missing, OptimError::NoValues { path } if *path == without),
        "{missing}"
    );
    for path in [&with, &without] {
        fresh.load(path).unwrap();
        assert_eq!(bits(&fresh), start);
        let (ours, expected) = (fresh.params().next().unwrap(), optimizer.params().next().unwrap());
        assert_eq!(fresh.state(ours), optimizer.state(expected));
    }
}

#[test]
fn the_file_is_a_valid_safetensors_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let optimizer = adam();
    optimizer.save_with_params(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    // Four parameters and the empty one have had a gradient: five states of two slots, and six values.
    assert_eq!(tensors.len(), 6 + 5 * 2);
    assert_eq!(tensors.tensor("state.0.0.exp_avg_sq").unwrap().shape(), [3, 4]);
    assert_eq!(
        tensors.tensor("param.1.0").unwrap().dtype(),
        safetensors::Dtype::BF16
    );
    let loaded = candle_core::safetensors::load(&path, &Device::Cpu).unwrap();
    let weight = optimizer.params().next().unwrap().value();
    assert_eq!(
        loaded["param.0.0"].to_vec2::<f32>().unwrap(),
        weight.to_vec2::<f32>().unwrap()
    );
}

#[test]
fn a_file_is_replaced_atomically() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut optimizer = adam();
    optimizer.save(&path).unwrap();
    let mut held = fs::File::open(&path).unwrap();
    let before = fs::read(&path).unwrap();
    run(&mut optimizer, 3..4);
    optimizer.save(&path).unwrap();
    let after = fs::read(&path).unwrap();
    assert_ne!(before, after);
    // An open reader keeps the old contents.
    let mut read = Vec::new();
    held.read_to_end(&mut read).unwrap();
    assert!(read == before);
    assert_eq!(names(folder.path()), ["state"]);

    // A failed replacement leaves the target unchanged and no temporary file.
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("file"), "here first").unwrap();
    let refused = error(optimizer.save(&taken));
    assert!(
        matches!(&refused, OptimError::File { action: "write", path, .. } if *path == taken),
        "{refused}"
    );
    assert_eq!(names(folder.path()), ["state", "taken"]);
    let nowhere = error(optimizer.save(folder.path().join("no/such/folder")));
    assert!(
        matches!(nowhere, OptimError::File { action: "write", .. }),
        "{nowhere}"
    );
    assert!(matches!(error(optimizer.save("/")), OptimError::File { .. }));
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}
