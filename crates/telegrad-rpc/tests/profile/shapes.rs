//! Shapes of tensors in recordings that ask for them (S44).

use telegrad_wire::{Buffer, DType, RawTensor, TensorMeta};

use super::*;

#[remote]
fn pass_on(x: RawTensor) -> Result<RawTensor> {
    let world = World::current()?;
    world.rpc_sync(world.rank() + 1, keep, (x.clone(),))?;
    Ok(x)
}

#[remote]
fn keep(_: RawTensor) {}

fn tensor() -> RawTensor {
    let meta = TensorMeta {
        dtype: DType::U8,
        shape: vec![2, 3],
    };
    RawTensor::new(meta, Buffer::from_vec(vec![7_u8; 6])).unwrap()
}

/// Returns the names and shapes of calls and executions.
fn shapes(profile: &Profile) -> Vec<(&str, &str)> {
    let calls = profile
        .events
        .iter()
        .filter(|event| event.as_call().is_some() || event.as_execution().is_some());
    calls
        .map(|event| {
            let name = event.name.rsplit("::").next().unwrap_or_default();
            (name, event.shapes.first().map_or("", |shape| &**shape))
        })
        .collect()
}

#[test]
fn a_recording_of_a_process_has_shapes_on_request() {
    let cluster = Cluster::processes(3);
    let board = cluster.board();
    cluster.run(move |world| match world.rank() {
        0 => {
            board.wait("recording");
            world.rpc_sync(1, pass_on, (tensor(),)).unwrap();
            board.raise("called");
        }
        1 => {
            let options = Options {
                shapes: true,
                ..Options::default()
            };
            let with = ProcessProfile::start_with(&world, &options).unwrap();
            let without = ProcessProfile::start(&world).unwrap();
            board.raise("recording");
            board.wait("called");
            let (with, without) = (with.finish(), without.finish());
            assert_eq!(shapes(&with), [("pass_on", "u8[2, 3]"), ("keep", "u8[2, 3]")]);
            assert_eq!(shapes(&without), [("pass_on", ""), ("keep", "")]);
        }
        _ => {}
    });
}

#[test]
fn a_recording_of_a_world_has_shapes_on_request() {
    assert_eq!(record_whole_world("1"), ["u8[2, 3]"; 4]);
}

#[test]
fn a_recording_of_a_world_has_no_shapes_by_default() {
    assert_eq!(record_whole_world("0"), [""; 4]);
}

/// Records a whole world, and returns the shapes of its two calls and their executions.
fn record_whole_world(variable: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    Cluster::processes(3)
        .env(telegrad_trace::FOLDER_ENV, &path.display().to_string())
        .env(telegrad_trace::SHAPES_ENV, variable)
        .run(|world| {
            if world.rank() == 0 {
                world.rpc_sync(1, pass_on, (tensor(),)).unwrap();
            }
        });
    let profile = telegrad_profile::read(&[path]).unwrap();
    let ours = |(name, _): &(&str, &str)| ["pass_on", "keep"].contains(name);
    let shapes = shapes(&profile).into_iter().filter(ours);
    shapes.map(|(_, shape)| shape.to_owned()).collect()
}
