//! Failures on other workers, and how they reach the caller.

use telegrad_rpc::{Error, Hop, Options, RemoteError, RemoteErrorKind, Result, World, remote};
use telegrad_testkit::{Cluster, on_every_cluster, on_threads_and_processes};
use telegrad_wire::{Buffer, DType, Decoder, Encoder, RawTensor, TensorMeta, Wire, WireError};

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("there is no layer {0}")]
    NoLayer(usize),
    #[error("the other worker failed")]
    Remote(#[from] Error),
}

type Boxed = Box<dyn std::error::Error + Send + Sync>;

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[remote]
fn fail_text(why: String) -> Result<i64, String> {
    Err(format!("no: {why}"))
}

#[remote]
fn fail_custom(layer: usize) -> Result<i64, Trouble> {
    Err(Trouble::NoLayer(layer))
}

#[remote]
fn fail_boxed(number: String) -> Result<i64, Boxed> {
    Ok(number.parse::<i64>()?)
}

#[remote]
async fn fail_async() -> Result<i64, std::fmt::Error> {
    Err(std::fmt::Error)
}

#[remote]
fn fail_other() -> Result<i64> {
    Err(Error::other(std::io::Error::other("the disk is full")))
}

#[remote]
fn panic_str() {
    panic!("a plain panic")
}

#[remote]
fn panic_string(n: i64) {
    panic!("{}", format!("a panic with {n}"))
}

#[remote]
fn panic_any() {
    std::panic::panic_any(42)
}

#[remote]
async fn panic_async() {
    panic!("an async panic")
}

#[remote(inline)]
fn panic_inline() {
    panic!("an inline panic")
}

/// Calls `fail_text` on `to`, by way of `via`.
#[remote]
fn through(via: u32, to: u32) -> Result<i64> {
    let world = World::current()?;
    if world.rank() == via {
        return world.rpc_sync(to, fail_text, ("deep".into(),));
    }
    world.rpc_sync(via, through, (via, to))
}

#[remote]
fn panic_through(to: u32) -> Result<()> {
    World::current()?.rpc_sync(to, panic_str, ())
}

/// Wraps the error of a nested call in another one.
#[remote]
fn wrapped(to: u32) -> Result<i64, Trouble> {
    let world = World::current()?;
    Ok(world.rpc_sync(to, fail_text, ("deep".into(),))?)
}

/// A value that fails to encode or to decode.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fallible {
    FailsToEncode,
    FailsToDecode,
    Valid,
}

impl Wire for Fallible {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::FailsToEncode => encoder.fail(WireError::Unsendable {
                why: "refused by the test".into(),
            }),
            Self::FailsToDecode => encoder.uint(0),
            Self::Valid => encoder.uint(1),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        match u64::decode(decoder)? {
            1 => Ok(Self::Valid),
            other => Err(WireError::mismatch("a decodable value", other.to_string())),
        }
    }
}

#[remote]
fn take(_: Fallible) {}

#[remote]
fn give(encodes: bool) -> Fallible {
    if encodes {
        Fallible::FailsToDecode
    } else {
        Fallible::FailsToEncode
    }
}

#[remote]
fn bytes(count: usize) -> Vec<u8> {
    vec![1; count]
}

#[remote]
fn count(bytes: Vec<u8>) -> usize {
    bytes.len()
}

#[track_caller]
fn remote_error(error: &Error) -> &RemoteError {
    error
        .remote()
        .unwrap_or_else(|| panic!("not a remote error: {error:?}"))
}

on_every_cluster! { 2 =>
    errors_of_every_type_reach_the_caller_with_their_text
    a_panic_reaches_the_caller_and_the_worker_keeps_serving
    a_value_that_fails_to_encode_is_an_error_at_the_caller
    a_value_that_fails_to_decode_is_reported_with_place_and_reason
    messages_beyond_the_limit_are_refused_and_the_link_stays_usable
    too_many_tensors_for_a_message_are_reported_with_the_limit
}

fn errors_of_every_type_reach_the_caller_with_their_text(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let check = |error: Error, function: &str, message: &str| {
            assert_eq!(
                error.to_string(),
                format!("`errors::{function}` failed on worker `w1`: {message}")
            );
            let remote = remote_error(&error);
            assert_eq!(
                (remote.kind, remote.message.as_str()),
                (RemoteErrorKind::Failed, message)
            );
            let hop = Hop {
                worker: "w1".into(),
                function: format!("errors::{function}"),
            };
            assert_eq!(remote.chain, [hop]);
            assert_eq!(
                (remote.worker(), remote.function()),
                ("w1", format!("errors::{function}").as_str())
            );
        };
        check(
            world.rpc_sync(1, fail_text, ("x".into(),)).unwrap_err(),
            "fail_text",
            "no: x",
        );
        check(
            world.rpc_sync(1, fail_custom, (3,)).unwrap_err(),
            "fail_custom",
            "there is no layer 3",
        );
        let text = "invalid digit found in string";
        check(
            world.rpc_sync(1, fail_boxed, ("x".into(),)).unwrap_err(),
            "fail_boxed",
            text,
        );
        let text = std::fmt::Error.to_string();
        check(
            world.rpc_sync(1, fail_async, ()).unwrap_err(),
            "fail_async",
            &text,
        );
        check(
            world.rpc_sync(1, fail_other, ()).unwrap_err(),
            "fail_other",
            "the disk is full",
        );
        assert_eq!(world.rpc_sync(1, fail_boxed, ("12".into(),)).unwrap(), 12);
    });
}

fn a_panic_reaches_the_caller_and_the_worker_keeps_serving(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let check = |error: Error, function: &str, message: &str| {
            assert_eq!(
                error.to_string(),
                format!("`errors::{function}` panicked on worker `w1`: {message}")
            );
            assert_eq!(remote_error(&error).kind, RemoteErrorKind::Panicked);
            assert_eq!(
                world.rpc_sync(1, add, (1, 1)).unwrap(),
                2,
                "the worker still serves"
            );
        };
        check(
            world.rpc_sync(1, panic_str, ()).unwrap_err(),
            "panic_str",
            "a plain panic",
        );
        check(
            world.rpc_sync(1, panic_string, (7,)).unwrap_err(),
            "panic_string",
            "a panic with 7",
        );
        check(
            world.rpc_sync(1, panic_any, ()).unwrap_err(),
            "panic_any",
            "no message",
        );
        check(
            world.rpc_sync(1, panic_async, ()).unwrap_err(),
            "panic_async",
            "an async panic",
        );
        check(
            world.rpc_sync(1, panic_inline, ()).unwrap_err(),
            "panic_inline",
            "an inline panic",
        );
        // Several at once, more than there are threads.
        let calls: Vec<_> = (0..50)
            .map(|_| world.rpc_async(1, panic_str, ()).unwrap())
            .collect();
        for call in calls {
            assert_eq!(
                remote_error(&call.wait().unwrap_err()).kind,
                RemoteErrorKind::Panicked
            );
        }
        assert_eq!(world.rpc_sync(1, add, (1, 1)).unwrap(), 2);
    });
}

fn a_value_that_fails_to_encode_is_an_error_at_the_caller(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let error = world.rpc_async(1, take, (Fallible::FailsToEncode,)).unwrap_err();
        let text = "cannot send the arguments of `errors::take` to worker `w1`: \
                    this tensor cannot be sent: refused by the test";
        assert_eq!(error.to_string(), text);
        let error = world.rpc_sync(1, give, (false,)).unwrap_err();
        assert_eq!(remote_error(&error).kind, RemoteErrorKind::BadResult);
        let text = "the result of `errors::give` cannot leave worker `w1`: \
                    this tensor cannot be sent: refused by the test";
        assert_eq!(error.to_string(), text);
        world.rpc_sync(1, take, (Fallible::Valid,)).unwrap();
        assert_eq!(world.debug_info().calls_out, 0);
    });
}

fn a_value_that_fails_to_decode_is_reported_with_place_and_reason(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let error = world.rpc_sync(1, take, (Fallible::FailsToDecode,)).unwrap_err();
        assert_eq!(remote_error(&error).kind, RemoteErrorKind::BadArguments);
        let start = "worker `w1` cannot call `errors::take` with these arguments: ";
        assert!(error.to_string().starts_with(start), "{error}");
        assert!(
            error.to_string().ends_with("expected a decodable value, found 0"),
            "{error}"
        );
        let error = world.rpc_sync(1, give, (true,)).unwrap_err();
        assert!(matches!(error, Error::Receive { .. }), "{error:?}");
        let text =
            "cannot read the result of `errors::give` from worker `w1`: expected a decodable value, found 0";
        assert_eq!(error.to_string(), text);
    });
}

fn messages_beyond_the_limit_are_refused_and_the_link_stays_usable(cluster: Cluster) {
    let limited = |options: &mut Options| options.max_message = 1 << 20;
    cluster.options(limited).run_on_rank_0(|world, _| {
        let error = world.rpc_sync(1, count, (vec![0; 2 << 20],)).unwrap_err();
        let start = "cannot send the arguments of `errors::count` to worker `w1`: a frame claims ";
        assert!(error.to_string().starts_with(start), "{error}");
        assert!(error.to_string().ends_with("the limit is 1048576"), "{error}");
        let error = world.rpc_sync(1, bytes, (2 << 20,)).unwrap_err();
        let start = "the result of `errors::bytes` cannot leave worker `w1`: a frame claims ";
        assert!(error.to_string().starts_with(start), "{error}");
        assert_eq!(world.rpc_sync(1, count, (vec![0; 1 << 19],)).unwrap(), 1 << 19);
        assert_eq!(world.rpc_sync(1, bytes, (1 << 19,)).unwrap().len(), 1 << 19);
    });
}

on_threads_and_processes! { 3 =>
    an_error_keeps_its_origin_through_nested_calls
    a_panic_keeps_its_origin_through_nested_calls
    a_wrapping_error_keeps_its_own_text_and_the_chain
}

fn an_error_keeps_its_origin_through_nested_calls(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let hop = |worker: &str, function: &str| Hop {
            worker: worker.into(),
            function: function.into(),
        };
        let error = world.rpc_sync(1, through, (1, 2)).unwrap_err();
        let remote = remote_error(&error);
        assert_eq!(
            remote.chain,
            [hop("w1", "errors::through"), hop("w2", "errors::fail_text")]
        );
        assert_eq!(
            (remote.kind, remote.message.as_str()),
            (RemoteErrorKind::Failed, "no: deep")
        );
        let text =
            "`errors::fail_text` failed on worker `w2` (called by `errors::through` on `w1`): no: deep";
        assert_eq!(error.to_string(), text);

        // Back to the caller: from w1 to w2 to w0.
        let error = world.rpc_sync(1, through, (2, 0)).unwrap_err();
        let names = ["errors::through", "errors::through", "errors::fail_text"];
        let chain: Vec<_> = ["w1", "w2", "w0"]
            .into_iter()
            .zip(names)
            .map(|(w, f)| hop(w, f))
            .collect();
        assert_eq!(remote_error(&error).chain, chain);
    });
}

fn a_panic_keeps_its_origin_through_nested_calls(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let error = world.rpc_sync(1, panic_through, (2,)).unwrap_err();
        assert_eq!(remote_error(&error).kind, RemoteErrorKind::Panicked);
        let text = "`errors::panic_str` panicked on worker `w2` (called by `errors::panic_through` on `w1`): a plain panic";
        assert_eq!(error.to_string(), text);
    });
}

fn a_wrapping_error_keeps_its_own_text_and_the_chain(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let error = world.rpc_sync(1, wrapped, (2,)).unwrap_err();
        let remote = remote_error(&error);
        assert_eq!(remote.message, "the other worker failed");
        let workers: Vec<_> = remote.chain.iter().map(|hop| hop.worker.as_str()).collect();
        assert_eq!(workers, ["w1", "w2"]);
    });
}

fn scalars(count: usize) -> Vec<RawTensor> {
    let meta = TensorMeta {
        dtype: DType::U8,
        shape: Vec::new(),
    };
    vec![RawTensor::new(meta, Buffer::from_vec(vec![1_u8])).unwrap(); count]
}

#[remote]
fn tally(tensors: Vec<RawTensor>) -> usize {
    tensors.len()
}

#[remote]
fn many(count: usize) -> Vec<RawTensor> {
    scalars(count)
}

fn too_many_tensors_for_a_message_are_reported_with_the_limit(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let most = usize::from(u16::MAX);
        let why = format!(
            "{} tensors in one message, the limit is {most}: stack them into fewer, or send them with several calls",
            most + 2
        );
        let error = world.rpc_sync(1, tally, (scalars(most + 2),)).unwrap_err();
        assert!(matches!(error, Error::Send { .. }), "{error:?}");
        let text = format!("cannot send the arguments of `errors::tally` to worker `w1`: {why}");
        assert_eq!(error.to_string(), text);

        let error = world.rpc_sync(1, many, (most + 2,)).unwrap_err();
        assert_eq!(remote_error(&error).kind, RemoteErrorKind::BadResult);
        let text = format!("the result of `errors::many` cannot leave worker `w1`: {why}");
        assert_eq!(error.to_string(), text);

        assert_eq!(world.rpc_sync(1, tally, (scalars(most),)).unwrap(), most);
        assert_eq!(world.rpc_sync(1, many, (most,)).unwrap().len(), most);
    });
}
