//! What a worker makes of messages that no worker of ours would send: errors, and nothing worse.

use candle_core::{DType, Device, Tensor, Var};
use telegrad_rpc::{Crossing, Departure, Tracked};
use telegrad_wire::{Arrived, Encoder, Rank, RawTensor, Wire};

use super::*;
use crate::candle::Candle;
use crate::message::{Cargo, Gradients, PassId, PassInfo, Shipment};

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

/// Has a message with tensors of three elements sent: its number.
fn send(node: &Node<Candle>, context: ContextId, count: usize) -> u64 {
    let mut encoder = Encoder::new();
    let weight = Var::zeros(3, DType::F32, &Device::Cpu).unwrap();
    for _ in 0..count {
        Wire::encode(&(weight.as_tensor() * 2.0).unwrap(), &mut encoder);
    }
    let tensors = encoder.finish().unwrap().tensors;
    match node.leaving(&crossing(context, false), &tensors).unwrap() {
        Departure::Tracked(recorded) => recorded.number,
        other => panic!("{other:?}"),
    }
}

/// Gradients of this many elements.
fn shipment(of: u64, lengths: &[usize]) -> Shipment {
    let cargo = |length: &usize| {
        let gradient = Tensor::ones(*length, DType::F32, &Device::Cpu).unwrap();
        Some(Cargo::Arrived(RawTensor::try_from(&gradient).unwrap()))
    };
    Shipment(vec![Gradients {
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

/// What is wrong with it.
#[track_caller]
fn refused(result: Result<Progress>) -> String {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn gradients_of_a_context_that_is_not_known() {
    let (node, _) = node();
    let unknown = ContextId::new(7, 7);
    let ended = AutogradError::Ended(unknown).to_string();
    assert_eq!(refused(node.take(unknown, pass(false), shipment(1, &[3]))), ended);
    assert_eq!(refused(node.proceed(unknown, pass(false))), ended);
    assert!(node.discover(unknown, pass(false), Some(&[1])).is_err());
    assert!(node.waiting(unknown, pass(false).id).is_empty());
    assert!(node.fail(unknown, "why").is_empty());
    assert_eq!(node.info().contexts, 1, "nothing came to be by that");
}

#[test]
fn gradients_of_a_message_that_was_not_sent() {
    let (node, context) = node();
    let number = send(&node, context, 1);
    let text = refused(node.take(context, pass(false), shipment(number + 1, &[3])));
    assert_eq!(text, AutogradError::Freed.to_string());
}

#[test]
fn too_many_gradients_and_too_few() {
    let (node, context) = node();
    let number = send(&node, context, 2);
    for lengths in [&[3][..], &[3, 3, 3], &[]] {
        let text = refused(node.take(context, pass(false), shipment(number, lengths)));
        let count = lengths.len();
        assert!(
            text.contains(&format!("{count} tensors for a message of 2")),
            "{text}"
        );
    }
}

#[test]
fn a_gradient_of_another_shape() {
    let (node, context) = node();
    let number = send(&node, context, 1);
    let text = refused(node.take(context, pass(false), shipment(number, &[4])));
    assert!(text.contains("[4]") && text.contains("[3]"), "{text}");
}

#[test]
fn gradients_that_come_twice() {
    for retain in [false, true] {
        let (node, context) = node();
        let number = send(&node, context, 1);
        // Keeps the first from being used up.
        send(&node, context, 1);
        let mut twice = shipment(number, &[3]);
        twice.0.extend(shipment(number, &[3]).0);
        let text = refused(node.take(context, pass(retain), twice));
        assert!(text.contains("it has come before"), "{text}");
        let text = refused(node.take(context, pass(retain), shipment(number, &[3])));
        assert!(text.contains("it has come before"), "{text}");
    }
}

#[test]
fn gradients_that_come_again_after_they_were_used() {
    for (retain, expected) in [(false, "has been freed"), (true, "it has come before")] {
        let (node, context) = node();
        let number = send(&node, context, 1);
        let progress = node.take(context, pass(retain), shipment(number, &[3])).unwrap();
        assert_eq!(progress.held, 0);
        let text = refused(node.take(context, pass(retain), shipment(number, &[3])));
        assert!(text.contains(expected), "{text}");
        assert_eq!(node.info().gradients, 1);
    }
}

#[test]
fn a_gradient_of_what_was_found_not_to_matter() {
    let (node, context) = node();
    let (used, unused) = (send(&node, context, 1), send(&node, context, 1));
    node.discover(context, pass(false), Some(&[used])).unwrap();
    node.proceed(context, pass(false)).unwrap();
    let text = refused(node.take(context, pass(false), shipment(unused, &[3])));
    assert!(text.contains("found not to matter"), "{text}");
}

/// A message from a peer that says this of its tensors.
fn receive(node: &Node<Candle>, context: ContextId, number: u64, places: &[u32], count: usize) -> usize {
    let tensor = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
    let tensors = vec![RawTensor::try_from(&tensor).unwrap(); count];
    let recorded = Tracked {
        number,
        tensors: places.to_vec(),
    };
    let arrived = node.arrived(&crossing(context, true), Some(recorded), tensors);
    arrived.unwrap().len()
}

#[test]
fn notes_of_tensors_that_are_not_there() {
    let (node, context) = node();
    assert_eq!(receive(&node, context, 1, &[0, 7, u32::MAX, 0, 1], 2), 2);
    assert_eq!(receive(&node, context, 2, &[0], 0), 0);
}

#[test]
fn a_number_that_is_given_to_two_messages() {
    let (node, context) = node();
    let leaves = |count: usize| -> Vec<Tensor> {
        let tensor = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        let tensors = vec![RawTensor::try_from(&tensor).unwrap(); count];
        let recorded = Tracked {
            number: 5,
            tensors: (0..count as u32).collect(),
        };
        let arrived = node.arrived(&crossing(context, true), Some(recorded), tensors);
        let made = arrived.unwrap().into_iter().map(|arrived| match arrived {
            Arrived::Made(made) => *made.downcast::<Tensor>().unwrap(),
            Arrived::Raw(_) => panic!("it was noted"),
        });
        made.collect()
    };
    let (first, second) = (leaves(3), leaves(1));
    let loss = Tensor::cat(&[&first[2], &second[0]], 0)
        .unwrap()
        .sum_all()
        .unwrap();
    let started = node.pass(HERE, false, crate::Mode::Smart);
    let progress = node.start(context, started, vec![loss]).unwrap();
    let (to, Shipment(gradients)) = &progress.shipments[0];
    assert_eq!((*to, gradients[0].of, gradients[0].gradients.len()), (PEER, 5, 3));
}

#[test]
fn tensors_without_gradients_that_are_said_to_have_one() {
    let (node, context) = node();
    let whole = Tensor::zeros(3, DType::U32, &Device::Cpu).unwrap();
    let recorded = Tracked {
        number: 1,
        tensors: vec![0],
    };
    let tensors = vec![RawTensor::try_from(&whole).unwrap()];
    let error = node
        .arrived(&crossing(context, true), Some(recorded), tensors)
        .unwrap_err();
    assert!(error.to_string().contains("have no gradient"), "{error}");
}

#[test]
fn a_tensor_that_came_in_another_context_is_not_taken_for_a_parameter() {
    let (node, context) = node();
    let other = node.open(HERE);
    let tensor = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
    let recorded = Tracked {
        number: 1,
        tensors: vec![0],
    };
    let tensors = vec![RawTensor::try_from(&tensor).unwrap()];
    let arrived = node.arrived(&crossing(other, true), Some(recorded), tensors);
    let Some(Arrived::Made(made)) = arrived.unwrap().pop() else {
        panic!("it was noted")
    };
    let loss = made.downcast::<Tensor>().unwrap().sum_all().unwrap();
    let started = node.pass(HERE, false, crate::Mode::Smart);
    let text = refused(node.start(context, started, vec![loss.clone()]));
    assert_eq!(text, AutogradError::Foreign { context, other }.to_string());
    // Once that one is over, it is a tensor like any other.
    let still = node.contexts.close(other);
    node.end(other, Some(&still));
    let started = node.pass(HERE, false, crate::Mode::Smart);
    node.start(context, started, vec![loss]).unwrap();
    assert_eq!(node.info().gradients, 1);
    assert!(node.origins.lock().is_empty());
}
