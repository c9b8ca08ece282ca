//! Parameters of modules on other workers as maps and as files.

use std::collections::{BTreeMap, HashMap};

use candle_nn::{VarBuilder, VarMap};
use telegrad_testkit::{on_cluster, on_threads_and_processes};

use super::var_map::net;
use super::*;

on_threads_and_processes! { 2 =>
    a_state_is_copied_and_restored
    files_are_on_the_callers_host
}

fn same(a: &BTreeMap<String, Tensor>, b: &BTreeMap<String, Tensor>) -> bool {
    let flat = |state: &BTreeMap<String, Tensor>| {
        let values = state.iter();
        values
            .map(|(name, value)| (name.clone(), flat(value).unwrap()))
            .collect::<Vec<_>>()
    };
    flat(a) == flat(b)
}

fn a_state_is_copied_and_restored(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let [a, b] = [
            RemoteModule::new(world, 1, block, (4, 8, 3, 5))?,
            RemoteModule::new(world, 1, block, (4, 8, 3, 6))?,
        ];
        let state = a.state_dict()?;
        let here = layers(4, 8, 3, 5)?;
        assert!(same(&state, &telegrad_nn::state_dict(&here)?));
        assert!(!same(&state, &b.state_dict()?));
        // Within a context the state is not tracked.
        let tracked = state.iter().map(|(name, value)| {
            let value = Var::from_tensor(value).unwrap().into_inner();
            (name.clone(), value)
        });
        let tracked: BTreeMap<_, _> = tracked.collect();
        world.context(|_| b.load_state_dict(&tracked))?;
        assert!(same(&state, &b.state_dict()?));
        Ok(())
    });
}

fn files_are_on_the_callers_host(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.safetensors");
        let [a, b] = [
            RemoteModule::new(world, 1, net, (1,))?,
            RemoteModule::new(world, 1, net, (2,))?,
        ];
        a.save(&path)?;
        assert!(!same(&a.state_dict()?, &b.state_dict()?));
        b.load(&path)?;
        assert!(same(&a.state_dict()?, &b.state_dict()?));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        Ok(())
    });
}

/// The variables of a candle model.
fn variables() -> VarMap {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    candle_nn::linear(4, 6, builder.pp("first")).unwrap();
    candle_nn::linear(6, 3, builder.pp("second")).unwrap();
    map
}

fn values_of(map: &VarMap) -> BTreeMap<String, Tensor> {
    let map = map.data().lock().unwrap();
    map.iter()
        .map(|(name, value)| (name.clone(), value.as_detached_tensor()))
        .collect()
}

#[test]
fn candle_and_torch_files_are_compatible() {
    on_rank_0(Cluster::threads(2), |world| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.safetensors");
        let there = RemoteModule::new(world, 1, net, (1,))?;
        let mut map = variables();
        // candle loads a saved module.
        there.save(&path)?;
        map.load(&path)?;
        assert!(same(&values_of(&map), &there.state_dict()?));
        // The module loads candle's file.
        let other = variables();
        other.save(&path)?;
        there.load(&path)?;
        assert!(same(&values_of(&other), &there.state_dict()?));
        // torch writes the names in another order, with a metadata entry.
        let bytes = values_of(&variables());
        let note = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        safetensors::serialize_to_file(bytes.iter().rev(), Some(note), &path).unwrap();
        there.load(&path)?;
        assert!(same(&bytes, &there.state_dict()?));
        Ok(())
    });
}

#[test]
fn mismatched_names_and_shapes_are_errors_and_change_nothing() {
    on_rank_0(Cluster::threads(2), |world| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.safetensors");
        let there = RemoteModule::new(world, 1, net, (1,))?;
        let whole = there.state_dict()?;
        let refused = |change: &dyn Fn(&mut BTreeMap<String, Tensor>), parts: &[&str]| {
            let mut state = whole.clone();
            change(&mut state);
            safetensors::serialize_to_file(&state, None, &path).unwrap();
            let from_file = there.load(&path).unwrap_err();
            assert_eq!(from_file.remote().map(|error| error.worker()), Some("w1"));
            assert!(
                from_file.to_string().contains("net.safetensors` does not fit"),
                "{from_file}"
            );
            let from_map = there.load_state_dict(&state).unwrap_err();
            for text in [from_file.to_string(), from_map.to_string()] {
                assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            }
            assert!(same(&whole, &there.state_dict().unwrap()));
        };
        let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
        refused(
            &|state| drop(state.remove("first.bias")),
            &["no value for the parameters `first.bias`"],
        );
        refused(
            &|state| drop(state.insert("third.bias".into(), zeros(&[1], DType::F32))),
            &["the module has no parameters `third.bias`"],
        );
        refused(
            &|state| drop(state.insert("second.weight".into(), zeros(&[6, 3], DType::F32))),
            &["parameter `second.weight` is a F32 [3, 6], the value to load a F32 [6, 3]"],
        );
        refused(
            &|state| drop(state.insert("second.bias".into(), zeros(&[3], DType::U32))),
            &["parameter `second.bias` is a F32 [3], the value to load a U32 [3]"],
        );
        // Floats of another size are converted.
        let half = whole
            .iter()
            .map(|(name, value)| (name.clone(), (value * 0.5).unwrap()));
        let half: BTreeMap<_, _> = half.collect();
        let wide = half
            .iter()
            .map(|(name, value)| (name.clone(), value.to_dtype(DType::F64).unwrap()));
        there.load_state_dict(&wide.collect())?;
        assert!(same(&half, &there.state_dict()?));

        let nowhere = folder.path().join("no/such/file.safetensors");
        for error in [there.load(&nowhere), there.save(&nowhere)] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("no/such/file.safetensors"), "{error}");
        }
        std::fs::write(&path, b"not a file of tensors").unwrap();
        let error = there.load(&path).unwrap_err().to_string();
        assert!(error.contains("net.safetensors"), "{error}");
        Ok(())
    });
}

#[test]
fn a_local_module_is_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    let [a, b] = [block(4, 8, 3, 5).unwrap(), block(4, 8, 3, 6).unwrap()];
    a.save(&path).unwrap();
    b.load(&path).unwrap();
    assert!(same(&a.state_dict().unwrap(), &b.state_dict().unwrap()));
    let error = net(1).unwrap().load(&path).unwrap_err().to_string();
    assert!(
        error.contains("net.safetensors` does not fit the module: "),
        "{error}"
    );
    b.load_state_dict(a.state_dict().unwrap()).unwrap();
}

on_cluster! { killed: Cluster::processes(2) =>
    every_use_of_a_module_on_a_lost_worker_names_the_worker
}

fn every_use_of_a_module_on_a_lost_worker_names_the_worker(cluster: Cluster) {
    let board = cluster.board();
    let cluster = cluster.options(|options| options.extension = Some(telegrad_autograd::layer::<Candle>));
    cluster.may_die(1).run(move |world| {
        if world.rank() != 0 {
            board.wait("never");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.safetensors");
        let there = RemoteModule::new(&world, 1, net, (1,)).unwrap();
        let state = there.state_dict().unwrap();
        there.save(&path).unwrap();
        let before = std::fs::read(&path).unwrap();
        board.kill(1);
        let x = numbers((1, 4), 0).unwrap();
        let errors = [
            there.state_dict().map(drop),
            there.load_state_dict(&state),
            there.save(&path),
            there.load(&path),
            there.call::<_, Tensor>(x.clone()).map(drop),
            there.forward(&x).map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("w1"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "the old file is unchanged");
    });
}
