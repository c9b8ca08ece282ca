//! Malformed messages of other workers are errors, and do not panic.

use candle_core::{DType, Device, Tensor, Var};
use telegrad_rpc::extension::{Crossing, Departure, Tracked};
use telegrad_wire::{Encoder, Rank, RawTensor, ReceivedTensor, Wire};

use super::*;
use crate::candle::Candle;
use crate::message::{GradientBatch, MessageGradients, PassId, PassInfo, WireGradient};

const HERE: Rank = 0;
const PEER: Rank = 1;

fn node() -> (Node<Candle>, ContextId) {
    let node = Node::default();
    let context = node.open(HERE);
    (node, context)
}

fn crossing(context: ContextId, is_reply: bool) -> Crossing<'static> {
    Crossing {
        context,
        peer: PEER,
        function: "f",
        is_reply,
        is_known: true,
    }
}

/// Tracks a sent message with tensors of three elements; returns its number.
fn send(node: &Node<Candle>, context: ContextId, count: usize) -> u64 {
    let mut encoder = Encoder::new();
    let weight = Var::zeros(3, DType::F32, &Device::Cpu).unwrap();
    for _ in 0..count {
        Wire::encode(&(weight.as_tensor() * 2.0).unwrap(), &mut encoder);
    }
    let tensors = encoder.finish().unwrap().tensors;
    match node.track_departure(&crossing(context, false), &tensors).unwrap() {
        Departure::Tracked(tracked) => tracked.number,
        other => panic!("{other:?}"),
    }
}

/// Gradients with these numbers of elements, for one message.
fn batch(of: u64, lengths: &[usize]) -> GradientBatch {
    let cargo = |length: &usize| {
        let gradient = Tensor::ones(*length, DType::F32, &Device::Cpu).unwrap();
        Some(WireGradient::Incoming(RawTensor::try_from(&gradient).unwrap()))
    };
    GradientBatch(vec![MessageGradients {
        of,
        gradients: lengths.iter().map(cargo).collect(),
    }])
}

fn pass(retain: bool) -> PassInfo {
    PassInfo {
        id: PassId {
            root: PEER,
            number: 1,
        },
        oldest: 1,
        retain,
        fast: false,
    }
}

/// The error text of a rejected batch.
#[track_caller]
fn refused(result: Result<Progress>) -> String {
    match result {
        Ok(_) => panic!("the batch was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn gradients_of_an_unknown_context_are_refused() {
    let (node, _) = node();
    let unknown = ContextId::new(7, 7);
    let ended = AutogradError::Ended(unknown).to_string();
    assert_eq!(refused(node.take(unknown, pass(false), batch(1, &[3]))), ended);
    assert_eq!(refused(node.proceed(unknown, pass(false))), ended);
    assert!(node.discover(unknown, pass(false), Some(&[1])).is_err());
    assert!(node.unused(unknown, pass(false).id).is_empty());
    assert!(node.fail(unknown, "why").is_empty());
    assert_eq!(node.info().contexts, 1, "no context was created");
}

#[test]
fn gradients_of_an_unknown_message_are_refused() {
    let (node, context) = node();
    let number = send(&node, context, 1);
    let text = refused(node.take(context, pass(false), batch(number + 1, &[3])));
    assert_eq!(text, AutogradError::Freed.to_string());
}

#[test]
fn a_wrong_number_of_gradients_is_refused() {
    let (node, context) = node();
    let number = send(&node, context, 2);
    for lengths in [&[3][..], &[3, 3, 3], &[]] {
        let text = refused(node.take(context, pass(false), batch(number, lengths)));
        let count = lengths.len();
        assert!(
            text.contains(&format!("{count} tensors for a message of 2")),
            "{text}"
        );
    }
}

#[test]
fn a_gradient_of_another_shape_is_refused() {
    let (node, context) = node();
    let number = send(&node, context, 1);
    let text = refused(node.take(context, pass(false), batch(number, &[4])));
    assert!(text.contains("[4]") && text.contains("[3]"), "{text}");
}

#[test]
fn duplicate_gradients_are_refused() {
    for retain in [false, true] {
        let (node, context) = node();
        let number = send(&node, context, 1);
        // A second root keeps the first from running.
        send(&node, context, 1);
        let mut twice = batch(number, &[3]);
        twice.0.extend(batch(number, &[3]).0);
        let text = refused(node.take(context, pass(retain), twice));
        assert!(text.contains("it was received before"), "{text}");
        let text = refused(node.take(context, pass(retain), batch(number, &[3])));
        assert!(text.contains("it was received before"), "{text}");
    }
}

#[test]
fn gradients_are_refused_after_their_root_has_run() {
    for (retain, expected) in [(false, "has been freed"), (true, "it was received before")] {
        let (node, context) = node();
        let number = send(&node, context, 1);
        let progress = node.take(context, pass(retain), batch(number, &[3])).unwrap();
        assert_eq!(progress.held, 0);
        let text = refused(node.take(context, pass(retain), batch(number, &[3])));
        assert!(text.contains(expected), "{text}");
        assert_eq!(node.info().gradients, 1);
    }
}

#[test]
fn a_gradient_of_an_unused_message_is_refused() {
    let (node, context) = node();
    let (used, unused) = (send(&node, context, 1), send(&node, context, 1));
    node.discover(context, pass(false), Some(&[used])).unwrap();
    node.proceed(context, pass(false)).unwrap();
    let text = refused(node.take(context, pass(false), batch(unused, &[3])));
    assert!(text.contains("the loss does not depend on"), "{text}");
}

/// Receives a message whose sender tracks these positions; returns the number of tensors.
fn receive(node: &Node<Candle>, context: ContextId, number: u64, positions: &[u32], count: usize) -> usize {
    let tensor = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
    let tensors = vec![RawTensor::try_from(&tensor).unwrap(); count];
    let tracked = Tracked {
        number,
        tensors: positions.to_vec(),
    };
    let arrived = node.track_arrival(&crossing(context, true), Some(tracked), tensors);
    arrived.unwrap().len()
}

#[test]
fn tracked_positions_beyond_the_tensors_are_ignored() {
    let (node, context) = node();
    assert_eq!(receive(&node, context, 1, &[0, 7, u32::MAX, 0, 1], 2), 2);
    assert_eq!(receive(&node, context, 2, &[0], 0), 0);
}

#[test]
fn a_message_number_used_twice_covers_the_longer_message() {
    let (node, context) = node();
    let leaves = |count: usize| -> Vec<Tensor> {
        let tensor = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        let tensors = vec![RawTensor::try_from(&tensor).unwrap(); count];
        let tracked = Tracked {
            number: 5,
            tensors: (0..count as u32).collect(),
        };
        let arrived = node.track_arrival(&crossing(context, true), Some(tracked), tensors);
        let made = arrived.unwrap().into_iter().map(|arrived| match arrived {
            ReceivedTensor::Tracked(made) => *made.downcast::<Tensor>().unwrap(),
            ReceivedTensor::Raw(_) => panic!("the tensor is tracked"),
        });
        made.collect()
    };
    let (first, second) = (leaves(3), leaves(1));
    let loss = Tensor::cat(&[&first[2], &second[0]], 0)
        .unwrap()
        .sum_all()
        .unwrap();
    let started = node.new_pass(HERE, false, crate::Mode::Smart);
    let progress = node.start(context, started, vec![loss]).unwrap();
    let (to, GradientBatch(gradients)) = &progress.batches[0];
    assert_eq!((*to, gradients[0].of, gradients[0].gradients.len()), (PEER, 5, 3));
}

#[test]
fn a_tracked_tensor_of_integers_is_refused() {
    let (node, context) = node();
    let whole = Tensor::zeros(3, DType::U32, &Device::Cpu).unwrap();
    let tracked = Tracked {
        number: 1,
        tensors: vec![0],
    };
    let tensors = vec![RawTensor::try_from(&whole).unwrap()];
    let error = node
        .track_arrival(&crossing(context, true), Some(tracked), tensors)
        .unwrap_err();
    assert!(error.to_string().contains("have no gradient"), "{error}");
}

#[test]
fn a_leaf_received_in_another_context_is_refused() {
    let (node, context) = node();
    let other = node.open(HERE);
    let tensor = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
    let tracked = Tracked {
        number: 1,
        tensors: vec![0],
    };
    let tensors = vec![RawTensor::try_from(&tensor).unwrap()];
    let arrived = node.track_arrival(&crossing(other, true), Some(tracked), tensors);
    let Some(ReceivedTensor::Tracked(made)) = arrived.unwrap().pop() else {
        panic!("the tensor is tracked")
    };
    let loss = made.downcast::<Tensor>().unwrap().sum_all().unwrap();
    let started = node.new_pass(HERE, false, crate::Mode::Smart);
    let text = refused(node.start(context, started, vec![loss.clone()]));
    assert_eq!(text, AutogradError::Foreign { context, other }.to_string());
    // Once the other context has ended, the leaf is an ordinary variable.
    let still = node.contexts.close(other);
    node.end(other, Some(&still));
    let started = node.new_pass(HERE, false, crate::Mode::Smart);
    node.start(context, started, vec![loss]).unwrap();
    assert_eq!(node.info().gradients, 1);
    assert!(node.origins.lock().is_empty());
}
