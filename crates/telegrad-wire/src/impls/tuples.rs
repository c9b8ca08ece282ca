//! Tuples of up to twelve elements. The arguments of a call are a tuple, so twelve limits them too.

use crate::{Decoder, Encoder, Layout, Layouts, TypeNumber, Wire, WireError};

impl Wire for () {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.nil();
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.nil()
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        layouts.add(Layout::Tuple(Vec::new()))
    }
}

macro_rules! tuple {
    ($len:literal: $($name:ident $index:tt),*) => {
        impl<$($name: Wire),*> Wire for ($($name,)*) {
            #[inline]
            fn encode(&self, encoder: &mut Encoder) {
                encoder.array_len($len);
                $(self.$index.encode(encoder);)*
            }

            #[inline]
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
                decoder.array_of($len, "a tuple")?;
                Ok(($($name::decode(decoder).map_err(|e| e.at(concat!("element ", $index)))?,)*))
            }

            fn layout(layouts: &mut Layouts) -> TypeNumber {
                let layout = Layout::Tuple(vec![$($name::layout(layouts)),*]);
                layouts.add(layout)
            }
        }
    };
}

tuple!(1: A 0);
tuple!(2: A 0, B 1);
tuple!(3: A 0, B 1, C 2);
tuple!(4: A 0, B 1, C 2, D 3);
tuple!(5: A 0, B 1, C 2, D 3, E 4);
tuple!(6: A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
