//! Arguments of `#[remote(…)]`.

use proc_macro2::{Span, TokenStream};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, ExprLit, Ident, Lit, LitStr, Meta, Token, parse_quote};

/// The arguments of one `#[remote]`.
#[derive(Default)]
pub(super) struct Arguments {
    pub(super) name: Option<LitStr>,
    pub(super) inline: bool,
    /// The function that answers calls instead.
    pub(super) answered_by: Option<Expr>,
    /// The class of a function of the framework, a variant of `Class`.
    pub(super) class: Option<Ident>,
    /// The span of `skip`, if present.
    pub(super) skip: Option<Span>,
}

impl Arguments {
    pub(super) fn parse(tokens: TokenStream) -> syn::Result<Self> {
        let mut arguments = Self::default();
        for meta in Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens)? {
            arguments.add(&meta)?;
        }
        match arguments.skip {
            Some(skip) if arguments.inline || arguments.name.is_some() || arguments.answered_by.is_some() => {
                Err(Error::new(
                    skip,
                    "`skip` leaves the function unregistered and takes no other arguments",
                ))
            }
            _ => Ok(arguments),
        }
    }

    /// Removes the `#[remote(…)]` attributes of a method and parses them.
    pub(super) fn take_from(attributes: &mut Vec<Attribute>) -> syn::Result<Self> {
        let mut tokens = TokenStream::new();
        let mut error = None;
        for attribute in attributes.extract_if(.., |attribute| is_remote(attribute)) {
            match attribute.meta {
                Meta::Path(_) => {}
                Meta::List(list) => {
                    tokens.extend(list.tokens);
                    tokens.extend(quote::quote!(,));
                }
                Meta::NameValue(pair) => {
                    error = Some(Error::new_spanned(pair, "write `#[remote(name = \"…\")]`"));
                }
            }
        }
        match error {
            Some(error) => Err(error),
            None => Self::parse(tokens),
        }
    }

    fn add(&mut self, meta: &Meta) -> syn::Result<()> {
        match meta {
            Meta::Path(path) if path.is_ident("inline") => self.inline = true,
            Meta::Path(path) if path.is_ident("skip") => self.skip = Some(path.span()),
            Meta::NameValue(pair) if pair.path.is_ident("name") => {
                if self.name.is_some() {
                    return Err(Error::new_spanned(pair, "a second name: a function has only one"));
                }
                self.name = Some(name(&pair.value)?);
            }
            Meta::NameValue(pair) if pair.path.is_ident("answered_by") => {
                self.answered_by = Some(pair.value.clone());
            }
            // How the runtime treats a function is the runtime's to say.
            Meta::NameValue(pair) if pair.path.is_ident("class") && is_runtime() => {
                let class = &pair.value;
                self.class = Some(parse_quote!(#class));
            }
            other if other.path().is_ident("name") => {
                return Err(Error::new_spanned(other, "write `name = \"…\"`"));
            }
            other => {
                return Err(Error::new_spanned(
                    other,
                    "unknown argument: `#[remote]` takes `name = \"…\"`, `inline` and, inside an impl block, `skip`",
                ));
            }
        }
        Ok(())
    }
}

/// Whether the compiled crate is telegrad-rpc.
fn is_runtime() -> bool {
    std::env::var("CARGO_PKG_NAME").is_ok_and(|package| package == "telegrad-rpc")
}

/// Whether the attribute is `remote`, under any path.
pub(super) fn is_remote(attribute: &Attribute) -> bool {
    attribute
        .path()
        .segments
        .last()
        .is_some_and(|segment| segment.ident == "remote")
}

fn name(value: &Expr) -> syn::Result<LitStr> {
    // A literal passed on by another macro is in an invisible group.
    if let Expr::Group(group) = value {
        return name(&group.expr);
    }
    let Expr::Lit(ExprLit {
        lit: Lit::Str(name), ..
    }) = value
    else {
        return Err(Error::new_spanned(
            value,
            "the name must be a string, as in `name = \"add\"`",
        ));
    };
    if name.value().trim().is_empty() {
        return Err(Error::new_spanned(
            name,
            "the name is empty: callers need a name for the function",
        ));
    }
    Ok(name.clone())
}

#[cfg(test)]
mod tests {
    use quote::quote;
    use syn::parse_quote;

    use super::*;

    fn error(tokens: TokenStream) -> String {
        Arguments::parse(tokens)
            .err()
            .map_or_else(|| "accepted".into(), |error| error.to_string())
    }

    #[test]
    fn name_and_inline_can_be_combined() {
        let arguments = Arguments::parse(quote!(inline, name = "add")).unwrap();
        assert!(arguments.inline);
        assert_eq!(arguments.name.unwrap().value(), "add");
        assert!(arguments.skip.is_none());
    }

    #[test]
    fn invalid_arguments_are_rejected_with_advice() {
        for (tokens, reason) in [
            (quote!(fast), "unknown argument"),
            (quote!(inline = true), "unknown argument"),
            (quote!(name), "write `name = "),
            (quote!(name = 3), "must be a string"),
            (quote!(name = ""), "the name is empty"),
            (quote!(name = "a", name = "b"), "a second name"),
            (quote!(skip, inline), "leaves the function unregistered"),
        ] {
            let error = error(tokens);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn attributes_of_a_method_are_parsed_and_removed() {
        let mut method: syn::ImplItemFn = parse_quote! {
            #[must_use]
            #[remote(name = "get")]
            #[telegrad::remote(inline)]
            fn f(&self) {}
        };
        let arguments = Arguments::take_from(&mut method.attrs).unwrap();
        assert!(arguments.inline);
        assert_eq!(arguments.name.unwrap().value(), "get");
        assert_eq!(method.attrs.len(), 1);
        assert!(method.attrs[0].path().is_ident("must_use"));
    }
}
