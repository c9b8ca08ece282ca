//! The trait of values that can be sent.

use crate::layout::short;
use crate::{Decoder, Encoder, Layouts, TypeNumber, WireError};

/// A value that can be sent between workers as an argument or a result.
///
/// Derive this trait for your own types. The encoding is MessagePack:
///
/// | Rust | MessagePack |
/// |---|---|
/// | integers up to 64 bits | int, in its shortest form |
/// | `u128`, `i128` | bin of 16 bytes, big-endian |
/// | `f32`, `f64` | float of 32 or 64 bits; `f16` and `bf16` as `f32` |
/// | `bool`, `String`, `Cow<'static, str>` | bool, str, str |
/// | `char`, `IpAddr`, `SocketAddr` | str |
/// | `Vec<u8>`, `[u8; N]` | bin |
/// | `()`, unit structs, `PhantomData`, `None` | nil |
/// | tuples, tuple structs, structs | array of the fields in order |
/// | newtype structs, `Box`, `Arc`, `Some` | as their content |
/// | `Vec`, `VecDeque`, arrays, sets | array |
/// | maps | map |
/// | `Duration` | array of seconds and nanoseconds |
/// | enums | the variant's name, or a map of one from the name to the payload |
/// | tensors | extension 1 of 4 bytes: index into the side table, big-endian |
/// | references | extension 2 of 4 bytes: index into their side table, big-endian |
///
/// `Some(x)` where `x` itself starts with nil is a map of one from nil to `x`, so that nested
/// options keep their meaning.
///
/// Decoding also accepts these forms, for peers in languages with fewer types:
///
/// - an integer of any width, and for `u128` and `i128` too, when it is in the type's range;
/// - for a float, an integer that the float type can represent exactly;
/// - for `f32` (and `f16`, `bf16`) also a float of 64 bits, rounded to the nearest, unless a finite
///   one would become infinite; for `f64` also a float of 32 bits;
/// - for `Vec<u8>` and `[u8; N]` also an array of integers; for `VecDeque<u8>` also bin.
///
/// Decoding rejects maps with two equal keys and sets with two equal elements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent between workers",
    label = "not a `Wire` type",
    note = "derive `Wire` for your own types with `#[derive(Wire)]`"
)]
pub trait Wire: Sized + 'static {
    /// Appends the value; reports a value that cannot be encoded to [`Encoder::fail`].
    fn encode(&self, encoder: &mut Encoder);

    /// Reads a value.
    ///
    /// # Errors
    /// When the bytes do not encode such a value. For any input, an implementation must not panic, and must not allocate
    /// more than in proportion to the bytes that are present.
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError>;

    /// Describes the type, for the comparison of signatures between programs (S9).
    ///
    /// The derived method describes fields and variants: their names, order and types. The default describes the type by its
    /// name without paths. A type that is encoded as another type should return the layout of that type:
    ///
    /// ```
    /// use telegrad_wire::{Decoder, Encoder, Layouts, TypeNumber, Wire, WireError};
    ///
    /// struct Celsius(f64);
    ///
    /// impl Wire for Celsius {
    ///     fn encode(&self, encoder: &mut Encoder) {
    ///         self.0.encode(encoder);
    ///     }
    ///
    ///     fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
    ///         f64::decode(decoder).map(Self)
    ///     }
    ///
    ///     fn layout(layouts: &mut Layouts) -> TypeNumber {
    ///         f64::layout(layouts)
    ///     }
    /// }
    /// ```
    fn layout(layouts: &mut Layouts) -> TypeNumber {
        layouts.named(short(std::any::type_name::<Self>()))
    }

    /// Whether encoding the value takes next to nothing: a thread that must not be held up may do it.
    ///
    /// True by default of small values without a destructor. Tensors answer whether their bytes can leave as they are.
    #[doc(hidden)]
    fn is_quick_to_encode(&self) -> bool {
        /// Bytes of a few numbers.
        const SMALL: usize = 64;
        !std::mem::needs_drop::<Self>() && size_of::<Self>() <= SMALL
    }

    /// Appends a sequence of values. `u8` overrides this to write MessagePack bytes.
    #[doc(hidden)]
    fn encode_slice(items: &[Self], encoder: &mut Encoder) {
        encoder.array_len(items.len());
        for item in items {
            item.encode(encoder);
        }
    }

    /// Reads a sequence of values.
    #[doc(hidden)]
    fn decode_vec(decoder: &mut Decoder<'_>) -> Result<Vec<Self>, WireError> {
        decoder.sequence()
    }

    /// Reads a sequence of a fixed number of values.
    #[doc(hidden)]
    fn decode_array<const N: usize>(decoder: &mut Decoder<'_>) -> Result<[Self; N], WireError> {
        decoder.array()
    }
}
