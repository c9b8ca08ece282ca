//! The element types that steps are computed in.

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::state::Slots;

/// A floating-point type that steps are computed in: `f32` or `f64`.
///
/// Steps of 16-bit parameters are computed in `f32` and rounded back.
pub trait Element:
    sealed::StateElement
    + Copy
    + Debug
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
    /// Rounds to this type.
    fn of(value: f64) -> Self;

    /// The square root.
    fn sqrt(self) -> Self;

    /// The absolute value.
    fn abs(self) -> Self;

    /// The larger of both; NaN if either is, as in torch.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // Only NaN differs from itself.
        #[expect(clippy::eq_op)]
        if other > self || other != other {
            other
        } else {
            self
        }
    }

    /// Linear interpolation, rounded as in torch.
    #[inline(always)]
    fn lerp(self, end: Self, weight: Self) -> Self {
        if weight < Self::of(0.5) {
            self + weight * (end - self)
        } else {
            end - (end - self) * (Self::of(1.0) - weight)
        }
    }
}

macro_rules! element {
    ($float:ident, $slots:ident) => {
        impl Element for $float {
            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }

            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }
        }

        impl sealed::StateElement for $float {
            fn wrap(slots: Vec<Vec<Self>>) -> Slots {
                Slots::$slots(slots)
            }

            fn unwrap(slots: &mut Slots) -> Option<&mut Vec<Vec<Self>>> {
                match slots {
                    Slots::$slots(slots) => Some(slots),
                    _ => None,
                }
            }
        }
    };
}

element!(f32, F32);
element!(f64, F64);

pub(crate) mod sealed {
    use crate::state::Slots;

    /// Access to the slots of a state by element type.
    pub trait StateElement: Sized {
        fn wrap(slots: Vec<Vec<Self>>) -> Slots;
        fn unwrap(slots: &mut Slots) -> Option<&mut Vec<Vec<Self>>>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_is_nan_if_either_operand_is() {
        assert_eq!(1f32.larger(2.0), 2.0);
        assert_eq!(2f64.larger(-1.0), 2.0);
        assert!(1f32.larger(f32::NAN).is_nan());
        assert!(f32::NAN.larger(1.0).is_nan());
    }

    #[test]
    fn interpolation_is_exact_at_both_ends() {
        for (start, end) in [(0.1f32, 0.3), (-7e8, 1e-3)] {
            assert_eq!(Element::lerp(start, end, 0.0), start);
            assert_eq!(Element::lerp(start, end, 1.0), end);
        }
        assert_eq!(Element::lerp(1f64, 3.0, 0.25), 1.5);
        assert_eq!(Element::lerp(1f64, 3.0, 0.75), 2.5);
    }
}
