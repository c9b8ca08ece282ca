//! Functions, arguments and callees: everything that can be called.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use telegrad_rpc::{Error, RRef, Result, World, caller, is_cancelled, join_all, register, remote, time_left};
use telegrad_testkit::{Cluster, float_tensor, on_every_cluster, on_threads_and_processes};
use telegrad_wire::{RawTensor, Wire};

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[remote]
fn nothing() {}

#[remote(inline)]
fn quick(x: u64) -> u64 {
    x + 1
}

#[remote(inline)]
fn waits_inline() -> Result<i64> {
    World::current()?.rpc_sync(0, add, (1, 1))
}

#[remote(name = "short")]
fn named_short() -> String {
    "short".into()
}

#[remote]
async fn later(x: i64) -> i64 {
    x * 2
}

/// Awaits nested calls, one after the other and together.
#[remote]
async fn later_through(to: u32, x: i64) -> Result<i64> {
    let world = World::current()?;
    let first = world.rpc_async(to, later, (x,))?.await?;
    let both = join_all([
        world.rpc_async(to, add, (first, 1))?,
        world.rpc_async(to, add, (first, 2))?,
    ]);
    Ok(both.await?.iter().sum())
}

#[remote]
#[expect(
    clippy::too_many_arguments,
    reason = "the largest number of arguments that is supported"
)]
fn twelve(
    a: u8,
    b: u16,
    c: u32,
    d: u64,
    e: i8,
    f: i16,
    g: i32,
    h: i64,
    i: f32,
    j: f64,
    k: bool,
    l: char,
) -> String {
    format!("{a} {b} {c} {d} {e} {f} {g} {h} {i} {j} {k} {l}")
}

#[derive(Wire, Debug, Clone, PartialEq)]
struct Point {
    x: f64,
    y: f64,
}

#[remote]
impl Point {
    fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }

    fn middle(a: Point, b: Point) -> Self {
        Self::new((a.x + b.x) / 2.0, (a.y + b.y) / 2.0)
    }

    async fn origin() -> Self {
        Self::new(0.0, 0.0)
    }

    #[remote(name = "dimensions")]
    fn dims() -> usize {
        2
    }
}

register!(std::cmp::max::<i64>, name = "std::max");

#[derive(Wire, Debug, Clone, PartialEq)]
enum Shape {
    Nothing,
    Circle(f32),
    Rectangle { at: Point, size: (u16, u16) },
}

#[derive(Wire, Debug, Clone, PartialEq)]
struct Everything {
    integers: (u8, i8, u16, i16, u32, i32, u64, i64, u128, i128),
    floats: (f32, f64),
    rest: (bool, char, String, ()),
    bytes: Vec<u8>,
    nested: Vec<Vec<Option<i32>>>,
    map: HashMap<String, Vec<u8>>,
    sorted: BTreeMap<u32, Point>,
    set: BTreeSet<String>,
    options: (Option<String>, Option<String>, Option<Option<u8>>),
    shapes: Vec<Shape>,
    time: Duration,
    array: [u16; 3],
    boxed: Box<i64>,
    tensor: RawTensor,
    tensors: HashMap<String, Vec<Option<RawTensor>>>,
}

#[remote]
fn echo(value: Everything) -> Everything {
    value
}

#[remote]
fn echo_tensors(tensors: Vec<RawTensor>) -> Vec<RawTensor> {
    tensors
}

#[remote]
fn echo_bytes(bytes: Vec<u8>) -> Vec<u8> {
    bytes
}

#[remote]
fn caller_and_callee() -> Result<(String, String, u32)> {
    let caller = caller().ok_or(Error::NoWorld)?;
    Ok((World::current()?.name().into(), caller.name, caller.rank))
}

fn tensor(shape: &[usize]) -> RawTensor {
    let count = shape.iter().product::<usize>();
    float_tensor(shape, (0..count).map(|i| i as f32).collect())
}

on_every_cluster! { 2 =>
    every_kind_of_function_can_be_called
    every_kind_of_argument_arrives_unchanged
    tensors_of_every_size_arrive_unchanged
    a_thousand_calls_from_sixteen_threads_get_their_own_results
    a_worker_can_call_itself
}

fn every_kind_of_function_can_be_called(cluster: Cluster) {
    cluster.run(|world| {
        let to = 1 - world.rank();
        assert_eq!(world.rpc_sync(to, add, (1, 2)).unwrap(), 3);
        world.rpc_sync(to, nothing, ()).unwrap();
        assert_eq!(world.rpc_sync(to, quick, (1,)).unwrap(), 2);
        assert_eq!(world.rpc_sync(to, named_short, ()).unwrap(), "short");
        assert_eq!(world.rpc_sync(to, later, (4,)).unwrap(), 8);
        assert_eq!(world.rpc_sync(to, later_through, (world.rank(), 4)).unwrap(), 19);
        assert_eq!(
            world.rpc_sync(to, Point::new, (1.0, 2.0)).unwrap(),
            Point { x: 1.0, y: 2.0 }
        );
        let (a, b) = (Point::new(0.0, 0.0), Point::new(2.0, 4.0));
        assert_eq!(
            world.rpc_sync(to, Point::middle, (a, b)).unwrap(),
            Point::new(1.0, 2.0)
        );
        assert_eq!(
            world.rpc_sync(to, Point::origin, ()).unwrap(),
            Point::new(0.0, 0.0)
        );
        assert_eq!(world.rpc_sync(to, Point::dims, ()).unwrap(), 2);
        assert_eq!(world.rpc_sync(to, std::cmp::max::<i64>, (3, 5)).unwrap(), 5);
        let args = (1, 2, 3, 4, -1, -2, -3, -4, 0.5, 0.25, true, 'ß');
        assert_eq!(
            world.rpc_sync(to, twelve, args).unwrap(),
            "1 2 3 4 -1 -2 -3 -4 0.5 0.25 true ß"
        );
    });
}

fn every_kind_of_argument_arrives_unchanged(cluster: Cluster) {
    cluster.run(|world| {
        let value = Everything {
            integers: (
                u8::MAX,
                i8::MIN,
                u16::MAX,
                i16::MIN,
                u32::MAX,
                i32::MIN,
                u64::MAX,
                i64::MIN,
                u128::MAX,
                i128::MIN,
            ),
            floats: (f32::MIN_POSITIVE, f64::NEG_INFINITY),
            rest: (true, '\u{10ffff}', "grüße\0".into(), ()),
            bytes: (0..=255).collect(),
            nested: vec![vec![], vec![Some(1), None, Some(-3)]],
            map: HashMap::from([("a".into(), vec![1]), (String::new(), vec![])]),
            sorted: BTreeMap::from([(7, Point::new(1.0, -1.0))]),
            set: BTreeSet::from(["x".into(), "y".into()]),
            options: (None, Some("some".into()), Some(None)),
            shapes: vec![
                Shape::Nothing,
                Shape::Circle(2.5),
                Shape::Rectangle {
                    at: Point::new(0.0, 1.0),
                    size: (3, 4),
                },
            ],
            time: Duration::new(3, 999_999_999),
            array: [1, 2, 3],
            boxed: Box::new(-1),
            tensor: tensor(&[2, 3]),
            tensors: HashMap::from([(
                "both".into(),
                vec![Some(tensor(&[5])), None, Some(tensor(&[1, 1]))],
            )]),
        };
        assert_eq!(
            world.rpc_sync(1 - world.rank(), echo, (value.clone(),)).unwrap(),
            value
        );
    });
}

fn tensors_of_every_size_arrive_unchanged(cluster: Cluster) {
    cluster.run(|world| {
        let to = 1 - world.rank();
        // A scalar, empty ones, a small one, and both sides of the limit of the control lane.
        let limit = telegrad_net::INLINE_LIMIT as usize / 4;
        let shapes: [&[usize]; 7] = [
            &[],
            &[0],
            &[3, 0, 2],
            &[2, 3],
            &[limit - 100],
            &[limit + 1],
            &[1024, 512],
        ];
        for shape in shapes {
            let sent = vec![tensor(shape)];
            let back = world.rpc_sync(to, echo_tensors, (sent.clone(),)).unwrap();
            assert!(back == sent, "{shape:?}");
            assert_eq!(back[0].shape(), shape);
        }
        let all: Vec<_> = shapes.iter().map(|shape| tensor(shape)).collect();
        assert!(world.rpc_sync(to, echo_tensors, (all.clone(),)).unwrap() == all);
        let bytes: Vec<u8> = (0..3_000_000).map(|i| (i % 253) as u8).collect();
        assert!(world.rpc_sync(to, echo_bytes, (bytes.clone(),)).unwrap() == bytes);
    });
}

fn a_thousand_calls_from_sixteen_threads_get_their_own_results(cluster: Cluster) {
    cluster.run(|world| {
        let to = 1 - world.rank();
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let world = &world;
                scope.spawn(move || {
                    for i in 0..1000 / 16 {
                        let (a, b) = (1000 * thread, i);
                        assert_eq!(world.rpc_sync(to, add, (a, b)).unwrap(), a + b);
                    }
                    let calls = (0..63).map(|i| world.rpc_async(to, add, (thread, i)).unwrap());
                    let sums = join_all(calls.collect::<Vec<_>>()).wait().unwrap();
                    assert!(sums.into_iter().eq((0..63).map(|i| thread + i)));
                });
            }
        });
        assert_eq!(world.debug_info().calls_out, 0);
    });
}

fn a_worker_can_call_itself(cluster: Cluster) {
    cluster.run(|world| {
        let me = world.rank();
        assert_eq!(world.rpc_sync(me, add, (1, 2)).unwrap(), 3);
        assert_eq!(world.rpc_sync(me, later_through, (me, 4)).unwrap(), 19);
        let large = vec![tensor(&[300_000])];
        assert!(world.rpc_sync(me, echo_tensors, (large.clone(),)).unwrap() == large);
        let name = world.name().to_owned();
        assert_eq!(
            world.rpc_sync(me, caller_and_callee, ()).unwrap(),
            (name.clone(), name, me)
        );
    });
}

on_threads_and_processes! { 3 =>
    workers_are_addressed_by_name_rank_and_info
    a_function_can_ask_for_its_caller_and_its_world
    a_wait_in_an_inline_function_is_an_error
}

fn workers_are_addressed_by_name_rank_and_info(cluster: Cluster) {
    cluster.names(&["alpha", "beta:1", "gamma-2_x"]).run(|world| {
        for info in world.get_worker_infos() {
            let expected = (info.name.clone(), world.name().to_owned(), world.rank());
            assert_eq!(
                world.rpc_sync(info.name.as_str(), caller_and_callee, ()).unwrap(),
                expected
            );
            assert_eq!(
                world.rpc_sync(&info.name, caller_and_callee, ()).unwrap(),
                expected
            );
            assert_eq!(
                world.rpc_sync(info.rank, caller_and_callee, ()).unwrap(),
                expected
            );
            assert_eq!(world.rpc_sync(&info, caller_and_callee, ()).unwrap(), expected);
        }
    });
}

fn a_function_can_ask_for_its_caller_and_its_world(cluster: Cluster) {
    cluster.run(|world| {
        let to = (world.rank() + 1) % 3;
        let expected = (format!("w{to}"), world.name().to_owned(), world.rank());
        assert_eq!(world.rpc_sync(to, caller_and_callee, ()).unwrap(), expected);
        // Outside of a remote function there is neither.
        assert!(matches!(World::current(), Err(Error::NoWorld)));
        assert_eq!((caller(), time_left(), is_cancelled()), (None, None, false));
    });
}

fn a_wait_in_an_inline_function_is_an_error(cluster: Cluster) {
    cluster.unix().run(|world| {
        let error = world
            .rpc_sync((world.rank() + 1) % 3, waits_inline, ())
            .unwrap_err();
        let text =
            "cannot wait here: inline functions and subscribers run on the thread that receives the reply. \
             Remove `inline` from the function, or make the call from another thread";
        assert_eq!(error.remote().unwrap().message, text);
    });
}

#[test]
fn an_unregistered_function_cannot_be_called() {
    fn not_remote(x: i64) -> i64 {
        x
    }
    Cluster::threads(1).run(|world| {
        let error = world.rpc_sync(0, not_remote, (1,)).unwrap_err();
        let path = "calls::an_unregistered_function_cannot_be_called::not_remote";
        assert_eq!(
            error.to_string(),
            format!("`{path}` is not a remote function: mark it with #[remote]")
        );
    });
}

#[test]
fn a_closure_cannot_be_called() {
    Cluster::threads(1).run(|world| {
        let number = RRef::new(&world, 1_i64).unwrap();
        let path = "calls::a_closure_cannot_be_called::{{closure}}::{{closure}}";
        let advice = "closures cannot be called remotely: make it a function marked #[remote]";
        for error in [
            world.rpc_sync(0, |n: i64| n, (1,)).unwrap_err(),
            world.rpc_async(0, |n: i64| n, (1,)).unwrap_err(),
            world.remote(0, |n: i64| n, (1,)).unwrap_err(),
            number.rpc_sync(|n: &i64| *n, ()).unwrap_err(),
            number.rpc_async(|n: &i64| *n, ()).unwrap_err(),
            number.remote(|n: &i64| *n, ()).unwrap_err(),
        ] {
            assert_eq!(
                error.to_string(),
                format!("`{path}` is not a remote function: {advice}")
            );
        }
    });
}
