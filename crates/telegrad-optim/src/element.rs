//! The numbers that steps are computed in.

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::state::Slots;

/// A floating-point type that steps are computed in: `f32` or `f64`.
///
/// Parameters of 16 bits are stepped in `f32` and rounded back.
pub trait Element:
    sealed::Kept
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
    /// The nearest number of this type.
    fn of(value: f64) -> Self;

    /// The square root.
    fn sqrt(self) -> Self;

    /// Without its sign.
    fn abs(self) -> Self;

    /// The larger of both; not a number if either is not, as in torch.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // Only what is no number differs from itself.
        #[expect(clippy::eq_op)]
        if other > self || other != other {
            other
        } else {
            self
        }
    }

    /// The point between both that has gone `weight` of the way, rounded as torch does it.
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

        impl sealed::Kept for $float {
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

    /// How a state keeps elements of this type.
    pub trait Kept: Sized {
        fn wrap(slots: Vec<Vec<Self>>) -> Slots;
        fn unwrap(slots: &mut Slots) -> Option<&mut Vec<Vec<Self>>>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_both_is_no_number_if_either_is_none() {
        assert_eq!(1f32.larger(2.0), 2.0);
        assert_eq!(2f64.larger(-1.0), 2.0);
        assert!(1f32.larger(f32::NAN).is_nan());
        assert!(f32::NAN.larger(1.0).is_nan());
    }

    #[test]
    fn both_ends_of_a_way_are_exact() {
        for (start, end) in [(0.1f32, 0.3), (-7e8, 1e-3)] {
            assert_eq!(Element::lerp(start, end, 0.0), start);
            assert_eq!(Element::lerp(start, end, 1.0), end);
        }
        assert_eq!(Element::lerp(1f64, 3.0, 0.25), 1.5);
        assert_eq!(Element::lerp(1f64, 3.0, 0.75), 2.5);
    }
}
