//! Scalars with their computation graph.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use telegrad_wire::{DType, Decoder, Encoder, RawTensor, ReceivedTensor, TensorSource, Wire, WireError};

/// A scalar in a graph.
#[derive(Clone)]
pub(crate) struct Scalar(Arc<Inner>);

struct Inner {
    /// Increasing, so that the operands of a scalar have smaller numbers.
    id: u64,
    value: f64,
    origin: Origin,
}

enum Origin {
    Constant,
    Leaf,
    Sum(Scalar, Scalar),
    Product(Scalar, Scalar),
    Sine(Scalar),
}

impl Scalar {
    pub(crate) fn constant(value: f64) -> Self {
        Self::new(value, Origin::Constant)
    }

    pub(crate) fn leaf(value: f64) -> Self {
        Self::new(value, Origin::Leaf)
    }

    fn new(value: f64, origin: Origin) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, SeqCst);
        Self(Arc::new(Inner { id, value, origin }))
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn value(&self) -> f64 {
        self.0.value
    }

    /// Whether the scalar is a leaf or was computed from one.
    pub(crate) fn is_tracked(&self) -> bool {
        !matches!(self.0.origin, Origin::Constant)
    }

    pub(crate) fn is_leaf(&self) -> bool {
        matches!(self.0.origin, Origin::Leaf)
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let value = self.value() + other.value();
        match self.is_tracked() || other.is_tracked() {
            true => Self::new(value, Origin::Sum(self.clone(), other.clone())),
            false => Self::constant(value),
        }
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let value = self.value() * other.value();
        match self.is_tracked() || other.is_tracked() {
            true => Self::new(value, Origin::Product(self.clone(), other.clone())),
            false => Self::constant(value),
        }
    }

    pub(crate) fn sine(&self) -> Self {
        let value = self.value().sin();
        match self.is_tracked() {
            true => Self::new(value, Origin::Sine(self.clone())),
            false => Self::constant(value),
        }
    }

    /// The operands, each with the derivative with respect to it.
    fn parents(&self) -> Vec<(&Self, f64)> {
        match &self.0.origin {
            Origin::Constant | Origin::Leaf => Vec::new(),
            Origin::Sum(a, b) => vec![(a, 1.0), (b, 1.0)],
            Origin::Product(a, b) => vec![(a, b.value()), (b, a.value())],
            Origin::Sine(a) => vec![(a, a.value().cos())],
        }
    }
}

/// The leaves that these scalars were computed from.
pub(crate) fn leaves(roots: &[Scalar]) -> BTreeSet<u64> {
    let (mut seen, mut leaves) = (BTreeSet::new(), BTreeSet::new());
    let mut to_see: Vec<&Scalar> = roots.iter().collect();
    while let Some(scalar) = to_see.pop() {
        if seen.insert(scalar.id()) {
            if scalar.is_leaf() {
                leaves.insert(scalar.id());
            }
            to_see.extend(scalar.parents().into_iter().map(|(parent, _)| parent));
        }
    }
    leaves
}

/// Computes the gradients of all leaves by plain reverse mode, from those of the roots.
pub(crate) fn gradients(roots: &[(Scalar, f64)]) -> BTreeMap<u64, f64> {
    // In descending order of numbers: the results of a scalar come before it.
    let mut open: BTreeMap<u64, (&Scalar, f64)> = BTreeMap::new();
    for (root, gradient) in roots {
        open.entry(root.id()).or_insert((root, 0.0)).1 += gradient;
    }
    let mut found = BTreeMap::new();
    while let Some((id, (scalar, gradient))) = open.pop_last() {
        if scalar.is_leaf() {
            found.insert(id, gradient);
        }
        for (parent, derivative) in scalar.parents() {
            if parent.is_tracked() {
                open.entry(parent.id()).or_insert((parent, 0.0)).1 += derivative * gradient;
            }
        }
    }
    found
}

impl Wire for Scalar {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.tensor(self.clone());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        match decoder.received_tensor()? {
            ReceivedTensor::Raw(raw) => number(&raw).map(Self::constant),
            ReceivedTensor::Tracked(made) => match made.downcast::<Self>() {
                Ok(scalar) => Ok(*scalar),
                Err(_) => Err(WireError::mismatch("a number", "something else")),
            },
        }
    }
}

/// Decodes a received scalar.
pub(crate) fn number(raw: &RawTensor) -> Result<f64, WireError> {
    let bytes = raw.bytes().try_into();
    let bytes = bytes.map_err(|_| WireError::mismatch("a number", raw.meta().to_string()))?;
    Ok(f64::from_le_bytes(bytes))
}

impl TensorSource for Scalar {
    fn dtype(&self) -> DType {
        DType::F64
    }

    fn shape(&self) -> &[usize] {
        &[]
    }

    fn with_bytes(&self, read: &mut dyn FnMut(&[u8])) {
        read(&self.value().to_le_bytes());
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value().fmt(f)
    }
}
