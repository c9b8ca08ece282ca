//! Where backward passes start.

/// The tensors that a backward pass starts from: one, or a slice, an array or a vector of them.
pub trait Roots<T> {
    /// The tensors as a slice.
    fn as_roots(&self) -> &[T];
}

impl<T> Roots<T> for T {
    fn as_roots(&self) -> &[T] {
        std::slice::from_ref(self)
    }
}

impl<T> Roots<T> for [T] {
    fn as_roots(&self) -> &[T] {
        self
    }
}

impl<T, const N: usize> Roots<T> for [T; N] {
    fn as_roots(&self) -> &[T] {
        self
    }
}

impl<T> Roots<T> for Vec<T> {
    fn as_roots(&self) -> &[T] {
        self
    }
}
