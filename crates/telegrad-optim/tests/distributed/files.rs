//! Saving and resuming of distributed optimisers.

use std::fs;
use std::path::Path;

use telegrad_optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, CosineAnnealingLr, RMSprop, RemoteGroup, Rprop,
};

use super::*;

/// Makes a model with groups of weights and biases, a schedule and clipping.
fn make<A: RemoteAlgorithm>(
    world: &World,
    options: &A,
    on: &[u32],
) -> Result<(Model, DistributedOptimizer<A>)> {
    let model = Model::new(world, on)?;
    let (mut weights, mut biases) = (Vec::new(), Vec::new());
    for (nth, param) in model.params()?.into_iter().enumerate() {
        if nth % 2 == 0 { &mut weights } else { &mut biases }.push(param);
    }
    let mut other = options.clone();
    // A number that needs all its digits.
    other.set_lr((0.1 + 0.2) / 7.0);
    let groups = vec![
        RemoteGroup {
            params: weights,
            options: options.clone(),
        },
        RemoteGroup {
            params: biases,
            options: other,
        },
    ];
    let optimizer = DistributedOptimizer::with_groups(world, groups)?
        .with_schedule(CosineAnnealingLr::new(25))?
        .with_max_norm(0.3)?;
    Ok((model, optimizer))
}

fn bits(model: &Model) -> Result<Vec<Vec<u32>>> {
    let values = model.values()?.into_iter();
    Ok(values
        .map(|value| value.into_iter().map(f32::to_bits).collect())
        .collect())
}

/// Runs a function with the options of every algorithm.
macro_rules! with_every_algorithm {
    ($run:ident($($with:expr),*)) => {{
        let momentum = Sgd { momentum: 0.9, dampening: 0.1, ..sgd(0.05) };
        $run($($with,)* &momentum)?;
        $run($($with,)* &Adam { lr: 0.01, amsgrad: true, ..Adam::default() })?;
        $run($($with,)* &AdamW { lr: 0.01, ..AdamW::default() })?;
        $run($($with,)* &Adagrad { lr: 0.1, lr_decay: 0.1, ..Adagrad::default() })?;
        $run($($with,)* &Adadelta::default())?;
        $run($($with,)* &RMSprop { momentum: 0.5, centered: true, ..RMSprop::default() })?;
        $run($($with,)* &Rprop::default())?;
        $run($($with,)* &Adamax { lr: 0.01, ..Adamax::default() })
    }};
}

const ON: [u32; 3] = [2, 0, 1];

/// Makes twenty steps and writes their result to a file; then makes ten steps and saves the optimiser.
fn begin<A: RemoteAlgorithm>(world: &World, folder: &Path, options: &A) -> Result<()> {
    let (model, optimizer) = make(world, options, &ON)?;
    model.train(world, &optimizer, 0..20)?;
    fs::write(
        folder.join(format!("{}.expected", A::NAME)),
        format!("{:?}", bits(&model)?),
    )
    .unwrap();
    let (model, optimizer) = make(world, options, &ON)?;
    model.train(world, &optimizer, 0..10)?;
    optimizer.set_lr(0, optimizer.lrs()[0])?;
    optimizer.set_lr(0, options.lr())?;
    optimizer.save(folder.join(A::NAME))
}

fn resume<A: RemoteAlgorithm>(world: &World, folder: &Path, options: &A) -> Result<()> {
    // The file overrides the learning rates.
    let mut other = options.clone();
    other.set_lr(0.77);
    let (model, optimizer) = make(world, &other, &ON)?;
    model.train(world, &optimizer, 100..103)?;
    optimizer.load(folder.join(A::NAME))?;
    assert_eq!(optimizer.steps(), 10, "{}", A::NAME);
    model.train(world, &optimizer, 10..20)?;
    let expected = fs::read_to_string(folder.join(format!("{}.expected", A::NAME))).unwrap();
    assert_eq!(format!("{:?}", bits(&model)?), expected, "{}", A::NAME);
    Ok(())
}

#[test]
fn every_algorithm_resumes_bit_for_bit_in_another_world() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    on_rank_0(Cluster::threads(3), move |world| {
        with_every_algorithm!(begin(world, &path))
    });
    let path = folder.path().to_owned();
    on_rank_0(Cluster::threads(3), move |world| {
        with_every_algorithm!(resume(world, &path))
    });
}

#[test]
fn owners_are_matched_by_name_not_rank() {
    let folder = tempfile::tempdir().unwrap();
    for names in [["a", "b", "c"], ["c", "a", "b"]] {
        let path = folder.path().to_owned();
        on_rank_0(Cluster::threads(3).names(&names), move |world| {
            let rank = |name: &str| world.get_worker_info(name).map(|info| info.rank);
            let on = [rank("b")?, rank("c")?];
            let (model, optimizer) = make(world, &Adam::default(), &on)?;
            if names[0] == "a" {
                model.train(world, &optimizer, 0..5)?;
                optimizer.save(path.join("state"))?;
                fs::write(path.join("expected"), format!("{:?}", bits(&model)?)).unwrap();
            } else {
                optimizer.load(path.join("state"))?;
                let expected = fs::read_to_string(path.join("expected")).unwrap();
                assert_eq!(format!("{:?}", bits(&model)?), expected);
            }
            Ok(())
        });
    }
}

/// Runs the body with a saved optimiser of a model on workers 1 and 2.
fn with_file(body: impl Fn(&World, &Path) -> Result<()> + Send + Sync + 'static) {
    let folder = tempfile::tempdir().unwrap();
    on_rank_0(Cluster::threads(3), move |world| {
        let (model, optimizer) = make(world, &Adam::default(), &[1, 2])?;
        model.train(world, &optimizer, 0..3)?;
        let path = folder.path().join("state");
        optimizer.save(&path)?;
        body(world, &path)
    });
}

/// Checks that loading fails and changes nothing; returns the error text.
#[track_caller]
fn refused<A: RemoteAlgorithm>(world: &World, path: &Path, options: &A, on: &[u32]) -> String {
    let (model, optimizer) = make(world, options, on).unwrap();
    model.train(world, &optimizer, 0..2).unwrap();
    let before = (bits(&model).unwrap(), optimizer.lrs(), optimizer.steps());
    let error = optimizer.load(path).unwrap_err().to_string();
    assert_eq!(
        (bits(&model).unwrap(), optimizer.lrs(), optimizer.steps()),
        before
    );
    // The state is unchanged too: later steps match those of an optimiser that has loaded nothing.
    let (other, without) = make(world, options, on).unwrap();
    other.train(world, &without, 0..4).unwrap();
    model.train(world, &optimizer, 2..4).unwrap();
    assert_eq!(bits(&model).unwrap(), bits(&other).unwrap());
    error
}

#[test]
fn files_of_other_optimisers_are_refused() {
    with_file(|world, path| {
        let adam = Adam::default();
        let shown = path.display();
        let error = refused(world, path, &adam, &[1, 0]);
        assert_eq!(
            error,
            format!("`{shown}` was saved with parameters on w1, w2, here they are on w0, w1")
        );
        let error = refused(world, path, &adam, &[1, 2, 0]);
        assert!(
            error.ends_with("was saved with parameters on w1, w2, here they are on w0, w1, w2"),
            "{error}"
        );

        let error = refused(world, path, &AdamW::default(), &[1, 2]);
        for worker in ["w1", "w2"] {
            assert!(
                error.contains(&format!("for the parameters of worker `{worker}`: ")),
                "{error}"
            );
        }
        assert!(
            error.contains("holds the state of `adam`, this optimiser is `adamw`"),
            "{error}"
        );

        // The file does not fit one of the owners: the other one has loaded nothing either.
        let error = refused(world, path, &adam, &[1, 2, 2]);
        assert!(
            error.starts_with("for the parameters of worker `w2`: "),
            "{error}"
        );
        let text = "is of other parameters: the number of parameters of group 0 is 2 here and 1 in the file";
        assert!(error.contains(text) && !error.contains("`w1`"), "{error}");
        Ok(())
    });
}

#[test]
fn files_that_are_missing_or_damaged_are_refused() {
    with_file(|world, path| {
        let adam = Adam::default();
        let missing = refused(world, &path.with_extension("none"), &adam, &[1, 2]);
        assert!(
            missing.starts_with("cannot read `") && missing.contains("state.none`"),
            "{missing}"
        );

        let whole = fs::read(path).unwrap();
        let load = |bytes: &[u8]| {
            fs::write(path, bytes).unwrap();
            refused(world, path, &adam, &[1, 2])
        };
        for length in [0, 7, 100, whole.len() / 2, whole.len() - 1] {
            let error = load(&whole[..length]);
            assert!(
                error.contains("is not a saved optimiser"),
                "{length} bytes: {error}"
            );
        }
        // The state of one owner is damaged: neither has loaded anything.
        let position = whole.windows(7).rposition(|window| window == b"exp_avg").unwrap();
        let mut bytes = whole.clone();
        bytes[position] = b'X';
        let error = load(&bytes);
        assert!(error.contains("is not a saved optimiser"), "{error}");
        // The file of a local optimiser has another header.
        let mut local = telegrad_optim::Optimizer::new(LocalModel::new(1)?.params(), adam.clone())?;
        local.step_with(|param| Ok(Some(param.value())))?;
        local.save(path)?;
        let error = refused(world, path, &adam, &[1, 2]);
        assert!(
            error.contains("metadata has no `telegrad-distributed-optim`"),
            "{error}"
        );
        Ok(())
    });
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
    with_file(|world, path| {
        let whole = fs::read(path).unwrap();
        let load = |from: &str, to: &str| {
            fs::write(path, edited(&whole, from, to)).unwrap();
            refused(world, path, &Adam::default(), &[1, 2])
        };
        let later = load(r#"\"version\":1"#, r#"\"version\":7"#);
        assert!(
            later.ends_with("has format 7, this program reads up to 1"),
            "{later}"
        );
        let damaged = load(r#"\"lrs\":[0.001,0.04"#, r#"\"lrs\":[0.00100004"#);
        assert!(
            damaged.contains("the learning rates of 1 groups, not 2"),
            "{damaged}"
        );
        let damaged = load(r#"\"lrs\":[0.001"#, r#"\"lrs\":[-0.01"#);
        assert!(damaged.contains("`lr` is -0.01"), "{damaged}");
        Ok(())
    });
}

#[test]
fn a_file_is_unchanged_when_saving_fails() {
    let cluster = Cluster::threads(3).no_shutdown();
    let board = cluster.board();
    with_autograd(cluster).run(move |world| match world.rank() {
        0 => {
            let folder = tempfile::tempdir().unwrap();
            let (model, optimizer) = make(&world, &Adam::default(), &[1, 2]).unwrap();
            let path = folder.path().join("state");
            optimizer.save(&path).unwrap();
            let first = fs::read(&path).unwrap();
            model.train(&world, &optimizer, 0..2).unwrap();
            optimizer.save(&path).unwrap();
            let second = fs::read(&path).unwrap();
            assert_ne!(first, second);

            // A directory is not replaced.
            let directory = folder.path().join("directory");
            fs::create_dir(&directory).unwrap();
            let error = optim_error(optimizer.save(&directory));
            assert!(
                matches!(error, OptimError::File { action: "write", .. }),
                "{error}"
            );
            assert!(directory.is_dir());

            board.raise("leave");
            let departed = || world.rpc_sync(2, nothing, ()).is_err();
            telegrad_testkit::wait_until(
                super::messages::PATIENCE,
                departed,
                || "worker `w2` does not leave",
            );
            let failed = owners_of(optimizer.save(&path));
            assert_eq!(failed.len(), 1);
            assert!(failed[0].1.contains("worker `w2`"), "{failed:?}");
            assert_eq!(fs::read(&path).unwrap(), second);
            let left = fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, 2);
            board.raise("body ended");
        }
        2 => {
            board.wait("leave");
            world.shutdown_now();
        }
        _ => board.wait("body ended"),
    });
}

#[remote]
fn nothing() {}
