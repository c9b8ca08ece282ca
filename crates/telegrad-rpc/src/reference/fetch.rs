//! The built-in function that fetches a value.

use telegrad_macros::remote;
use telegrad_wire::{Decoder, TypeLayout, Wire};

use super::Value;
use crate::error::RemoteErrorKind;
use crate::function::Failure;

/// Names the fetch of a value in requests; the owner sends the value without running this function.
///
/// A caller that runs another program sends the expected layout in place of the arguments, of which there are none.
#[remote(name = "telegrad::fetch", inline, class = Fetch)]
pub(crate) fn fetch() {}

/// Refuses to send a value whose layout differs from the one that the caller expects (S9).
pub(crate) fn check_expected(value: &Value, args: &mut Decoder<'_>) -> Result<(), Failure> {
    let expected = Option::<TypeLayout>::decode(args);
    let expected =
        expected.map_err(|error| Failure::System(RemoteErrorKind::BadArguments, error.to_string()))?;
    // A value without a layout cannot be sent, and is refused with that error.
    let (Some(expected), Some(layout)) = (expected, value.layout) else {
        return Ok(());
    };
    match expected.difference(&layout()) {
        None => Ok(()),
        Some(difference) => {
            let text = format!(
                "the caller knows `{}` with another layout: {difference}",
                value.type_name
            );
            Err(Failure::System(RemoteErrorKind::BadResult, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use telegrad_wire::Encoder;

    use super::*;
    use crate::function::LocalOnly;

    #[derive(Wire)]
    struct Cfg {
        lr: f64,
        steps: u64,
    }

    /// Returns the answer of the owner of a `Cfg` to a request with these arguments.
    fn check_request(args: &impl Wire) -> Result<(), String> {
        let value = Value::new(LocalOnly::wire(Cfg { lr: 0.1, steps: 3 }));
        let mut encoder = Encoder::new();
        args.encode(&mut encoder);
        let body = encoder.finish().unwrap().body;
        check_expected(&value, &mut Decoder::new(&body)).map_err(|failure| match failure {
            Failure::System(kind, text) => format!("{kind:?}: {text}"),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_value_is_sent_only_to_callers_with_the_same_layout() {
        mod caller {
            use super::*;
            #[derive(Wire)]
            pub(super) struct Cfg {
                steps: f64,
                lr: u64,
            }
        }
        assert_eq!(check_request(&()), Ok(()), "the caller runs the same program");
        assert_eq!(check_request(&TypeLayout::of::<Cfg>()), Ok(()));
        let name = std::any::type_name::<Cfg>();
        let difference = "field 0 of `Cfg` is `lr` there and `steps` here";
        assert_eq!(
            check_request(&TypeLayout::of::<caller::Cfg>()),
            Err(format!(
                "BadResult: the caller knows `{name}` with another layout: {difference}"
            ))
        );
        assert!(
            check_request(&"nonsense".to_owned())
                .unwrap_err()
                .starts_with("BadArguments: ")
        );
    }
}
