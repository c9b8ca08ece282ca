//! Files that an optimiser refuses to load.

use std::fs;

use candle_core::{Device, Tensor};
use telegrad_autograd::Param;
use telegrad_optim::{Adam, OptimError, Optimizer, ParamGroup, Sgd};

use crate::{adam, bits, error, groups};

#[test]
fn files_of_other_optimisers_are_refused_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    adam().save_with_params(&path).unwrap();
    let param = |values: &[f32]| Param::new(&Tensor::new(values, &Device::Cpu).unwrap()).unwrap();

    let mut sgd = Optimizer::new([param(&[1.0])], Sgd::default()).unwrap();
    let found = error(sgd.load(&path));
    assert!(matches!(&found, OptimError::OtherAlgorithm { expected: "sgd", found, .. } if found == "adam"));
    let missing = error(sgd.load(folder.path().join("nothing")));
    let OptimError::File {
        action: "read",
        source,
        ..
    } = missing
    else {
        panic!("{missing}")
    };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);

    let refused = |groups: Vec<ParamGroup<Adam>>, what: &str, expected: &str, found: &str| {
        let mut optimizer = Optimizer::with_groups(groups).unwrap();
        let (before, options) = (bits(&optimizer), optimizer.groups()[0].options.clone());
        let error = error(optimizer.load_with_params(&path));
        let text = format!("is of other parameters: {what} is {expected} here and {found} in the file");
        assert!(matches!(error, OptimError::OtherParameters { .. }));
        assert!(error.to_string().ends_with(&text), "{error}\n{text}");
        assert_eq!(bits(&optimizer), before);
        assert_eq!(optimizer.groups()[0].options, options);
        assert!(optimizer.params().all(|param| optimizer.state(param).is_none()));
    };
    let lr = Adam {
        lr: 0.5,
        ..Adam::default()
    };
    let matching = || groups(&lr);
    refused(matching().drain(..1).collect(), "the number of groups", "1", "2");
    let mut one_less = matching();
    one_less[1].params.pop();
    refused(one_less, "the number of parameters of group 1", "3", "4");
    let mut shape = matching();
    shape[1].params[3] = param(&[1.0, 2.0, 3.0]);
    refused(shape, "the shape of parameter 3 of group 1", "[3]", "[2]");
    let mut dtype = matching();
    dtype[0].params[1] = param(&[0.0; 5]);
    refused(
        dtype,
        "the element type of parameter 1 of group 0",
        "\"f32\"",
        "\"f64\"",
    );
}

#[test]
fn truncated_and_corrupted_files_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    adam().save(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    let mut optimizer = Optimizer::with_groups(groups(&Adam::default())).unwrap();
    for length in (0..whole.len()).step_by(37).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..length]).unwrap();
        let found = error(optimizer.load(&path));
        assert!(
            matches!(found, OptimError::Damaged { .. }),
            "{length} bytes: {found}"
        );
    }
    // With a corrupted header, loading returns an error or a state, and does not panic.
    let mut random = fastrand::Rng::with_seed(3);
    let header = 8 + usize::try_from(u64::from_le_bytes(whole[..8].try_into().unwrap())).unwrap();
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            bytes[random.usize(0..header)] = random.u8(..);
        }
        fs::write(&path, &bytes).unwrap();
        let _ = optimizer.load(&path);
    }
    optimizer
        .step_with(|param| Ok(Some(param.value().ones_like()?)))
        .unwrap();
}

/// Replaces a text in the header by another of the same length.
fn edited(whole: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let start = whole
        .windows(from.len())
        .position(|window| window == from.as_bytes());
    let start = start.unwrap_or_else(|| panic!("{from} in the file"));
    let mut bytes = whole.to_vec();
    bytes[start..start + to.len()].copy_from_slice(to.as_bytes());
    bytes
}

#[test]
fn invalid_headers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    adam().save(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    let mut optimizer = Optimizer::with_groups(groups(&Adam::default())).unwrap();
    let mut load = |bytes: Vec<u8>| {
        fs::write(&path, bytes).unwrap();
        error(optimizer.load(&path))
    };
    let later = load(edited(&whole, r#"\"version\":1"#, r#"\"version\":7"#));
    assert!(
        matches!(
            later,
            OptimError::Version {
                found: 7,
                known: 1,
                ..
            }
        ),
        "{later}"
    );
    let damaged = |error: OptimError, text: &str| {
        assert!(matches!(error, OptimError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    damaged(
        load(edited(&whole, "telegrad-optim", "telegrad-optin")),
        "metadata has no `telegrad-optim`",
    );
    damaged(
        load(edited(&whole, "state.0.1.exp_avg_sq", "state.0.7.exp_avg_sq")),
        "state.0.1.exp_avg_sq",
    );
    damaged(
        load(edited(&whole, "\"shape\":[3,4]", "\"shape\":[4,3]")),
        "of shape [4, 3]",
    );
    damaged(
        load(edited(&whole, r#"\"lr\":0.001"#, r#"\"lr\":-0.01"#)),
        "`lr` is -0.01",
    );
}
