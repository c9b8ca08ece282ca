//! The roots of a backward pass.

/// The tensors that a backward pass starts from: one tensor, or a slice, an array or a vector.
pub trait Roots<T> {
    /// Returns the tensors as a slice.
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
