use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor};
use telegrad_nn::{Linear, Module, NnError, Relu, Rng, Sequential, load, load_state_dict, save, state_dict};

use crate::gradient::numbers;

fn net(seed: u64) -> Sequential {
    let mut rng = Rng::new(seed);
    Sequential::new()
        .push(Linear::new(3, 4, &mut rng).unwrap())
        .push(Relu)
        .push(Linear::new(4, 2, &mut rng).unwrap())
}

fn values(module: &dyn Module) -> Vec<Vec<f64>> {
    module
        .parameters()
        .iter()
        .map(|param| numbers(&param.value()))
        .collect()
}

#[test]
fn a_file_restores_all_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    let (a, b) = (net(1), net(2));
    save(&a, &path).unwrap();
    assert_ne!(values(&a), values(&b));
    load(&b, &path).unwrap();
    assert_eq!(values(&a), values(&b));
    // No temporary file is left, and the file can be replaced.
    save(&net(3), &path).unwrap();
    load(&b, &path).unwrap();
    assert_eq!(values(&net(3)), values(&b));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_file_is_replaced_and_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let [path, old] = ["net.safetensors", "old.safetensors"].map(|name| dir.path().join(name));
    save(&net(1), &path).unwrap();
    // A hard link keeps the old contents.
    std::fs::hard_link(&path, &old).unwrap();
    save(&net(2), &path).unwrap();
    let module = net(3);
    load(&module, &old).unwrap();
    assert_eq!(values(&module), values(&net(1)));
    // A failed replacement leaves no temporary file.
    let taken = dir.path().join("folder");
    std::fs::create_dir(&taken).unwrap();
    let error = save(&net(1), &taken).unwrap_err().to_string();
    assert!(error.contains("folder"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn a_state_is_a_snapshot() {
    let module = net(1);
    let state = state_dict(&module).unwrap();
    let names: Vec<&String> = state.keys().collect();
    assert_eq!(names, ["0.bias", "0.weight", "2.bias", "2.weight"]);
    assert!(state.values().all(|value| !value.track_op()));
    let before = values(&module);
    load_state_dict(&module, &state_dict(&net(2)).unwrap()).unwrap();
    assert_ne!(values(&module), before);
    load_state_dict(&module, &state).unwrap();
    assert_eq!(values(&module), before);
}

#[test]
fn floats_of_another_size_are_converted() {
    let module = net(1);
    let state = state_dict(&net(2)).unwrap().into_iter();
    let state: BTreeMap<_, _> = state
        .map(|(name, value)| (name, value.to_dtype(DType::F64).unwrap()))
        .collect();
    load_state_dict(&module, &state).unwrap();
    assert_eq!(values(&module), values(&net(2)));
}

#[test]
fn mismatched_names_and_shapes_are_errors_and_change_nothing() {
    let module = net(1);
    let whole = state_dict(&net(2)).unwrap();

    let mut state = whole.clone();
    state.remove("0.weight");
    state.remove("2.bias");
    let error = load_state_dict(&module, &state).unwrap_err();
    assert!(matches!(error.nn(), Some(NnError::Names { .. })));
    assert_eq!(
        error.to_string(),
        "no value for the parameters `0.weight`, `2.bias`"
    );

    let mut state = whole.clone();
    state.insert(
        "3.weight".into(),
        Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap(),
    );
    let error = load_state_dict(&module, &state).unwrap_err();
    assert_eq!(error.to_string(), "the module has no parameters `3.weight`");

    // A renamed parameter is both missing and unknown.
    let mut state = whole.clone();
    let moved = state.remove("0.bias").unwrap();
    state.insert("first.bias".into(), moved);
    let error = load_state_dict(&module, &state).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no value for the parameters `0.bias`; the module has no parameters `first.bias`"
    );

    let mut state = whole.clone();
    state.insert(
        "2.weight".into(),
        Tensor::zeros((4, 2), DType::F32, &Device::Cpu).unwrap(),
    );
    let error = load_state_dict(&module, &state).unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameter `2.weight` is a F32 [2, 4], the value to load a F32 [4, 2]"
    );

    let mut state = whole;
    state.insert(
        "2.weight".into(),
        Tensor::zeros((2, 4), DType::U32, &Device::Cpu).unwrap(),
    );
    assert!(matches!(
        load_state_dict(&module, &state).err().unwrap().nn(),
        Some(NnError::Misfit { .. })
    ));
    assert_eq!(values(&module), values(&net(1)));
}

#[test]
fn an_error_of_a_mismatched_file_names_file_and_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linear.safetensors");
    save(&Linear::new(3, 4, &mut Rng::new(0)).unwrap(), &path).unwrap();
    let module = net(1);
    let error = load(&module, &path).unwrap_err();
    assert!(matches!(error.nn(), Some(NnError::Load { .. })));
    let text = error.to_string();
    for part in [
        "linear.safetensors",
        "`0.weight`",
        "no parameters `bias`, `weight`",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(values(&module), values(&net(1)));
}

#[test]
fn an_error_of_a_missing_or_damaged_file_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none.safetensors");
    let error = load(&net(1), &missing).unwrap_err().to_string();
    assert!(error.contains("none.safetensors"), "{error}");
    let broken = dir.path().join("broken.safetensors");
    std::fs::write(&broken, b"not a file of tensors").unwrap();
    assert!(matches!(
        load(&net(1), &broken).err().unwrap().nn(),
        Some(NnError::File { .. })
    ));
    assert!(save(&net(1), dir.path().join("no/such/dir.safetensors")).is_err());
}
