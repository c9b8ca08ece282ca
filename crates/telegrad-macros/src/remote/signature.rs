//! A function's signature as text, for error messages and listings. Programs are compared by layouts instead.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{FnArg, Pat, ReceiverKind, ReturnType, Signature};

/// `(Tensor, usize) -> Result<Tensor>`, with `async` before it for an async function.
pub(super) fn of(sig: &Signature) -> String {
    let inputs: Vec<_> = sig.inputs.iter().map(input).collect();
    let output = match &sig.output {
        ReturnType::Default => "()".into(),
        ReturnType::Type(_, ty) => text(ty),
    };
    let start = if sig.asyncness.is_some() { "async " } else { "" };
    format!("{start}({}) -> {output}", inputs.join(", "))
}

/// The names of the parameters, without a receiver.
pub(super) fn parameters(sig: &Signature) -> Vec<String> {
    let typed = sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(&*typed.pat),
        FnArg::Receiver(_) => None,
    });
    let name = |pattern: &Pat| match pattern {
        Pat::Ident(name) => name.ident.unraw().to_string(),
        other => text(other),
    };
    typed.map(name).collect()
}

fn input(input: &FnArg) -> String {
    match input {
        FnArg::Typed(typed) => text(&typed.ty),
        FnArg::Receiver(receiver) => match receiver.kind {
            ReceiverKind::Reference(_, _, Some(_)) => "&mut self".into(),
            _ => "&self".into(),
        },
    }
}

/// The tokens with conventional spacing, whatever the source has.
pub(super) fn text(tokens: &impl ToTokens) -> String {
    let mut out = String::new();
    append(&mut out, tokens.to_token_stream());
    out
}

fn append(out: &mut String, tokens: TokenStream) {
    // Whether the last token is the `-` of an arrow, whose `>` is no closing bracket.
    let mut arrow = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                out.push_str(open);
                append(out, group.stream());
                out.push_str(close);
            }
            TokenTree::Punct(punct) => match punct.as_char() {
                c @ (',' | ';') => {
                    out.push(c);
                    out.push(' ');
                }
                c @ ('+' | '=') => {
                    out.push(' ');
                    out.push(c);
                    out.push(' ');
                }
                '-' => {
                    arrow = true;
                    out.push_str(" -");
                    continue;
                }
                '>' if arrow => out.push_str("> "),
                // Omits a trailing comma inside `<…>`.
                '>' => {
                    out.truncate(out.trim_end_matches(", ").len());
                    out.push('>');
                }
                '\'' => {
                    separate(out);
                    out.push('\'');
                }
                c => out.push(c),
            },
            word => {
                separate(out);
                out.push_str(&word.to_string());
            }
        }
        arrow = false;
    }
}

/// Appends a space after a word or a closing bracket.
fn separate(out: &mut String) {
    if out.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '>' | ')' | ']' | '"')) {
        out.push(' ');
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[test]
    fn signatures_have_conventional_spacing() {
        for (sig, expected) in [
            (
                parse_quote!(fn add(a: Tensor, b: Tensor) -> Result<Tensor>),
                "(Tensor, Tensor) -> Result<Tensor>",
            ),
            (parse_quote!(fn nothing()), "() -> ()"),
            (
                parse_quote!(async fn get(&self, i: usize) -> f32),
                "async (&self, usize) -> f32",
            ),
            (
                parse_quote!(fn set(&mut self, x: [f32; 3])),
                "(&mut self, [f32; 3]) -> ()",
            ),
            (
                parse_quote!(fn f(m: std::collections::HashMap<String, Vec<(u8, bool)>>)),
                "(std::collections::HashMap<String, Vec<(u8, bool)>>) -> ()",
            ),
            (
                parse_quote!(fn f(x: Box<dyn Fn(u8) -> u8 + Send>)),
                "(Box<dyn Fn(u8) -> u8 + Send>) -> ()",
            ),
            (
                parse_quote!(fn f(x: <Vec<u8> as IntoIterator>::Item)),
                "(<Vec<u8> as IntoIterator>::Item) -> ()",
            ),
            (parse_quote!(fn f(x: Pair<u8, u8,>)), "(Pair<u8, u8>) -> ()"),
            (parse_quote!(fn f() -> &'static str), "() -> &'static str"),
        ] {
            assert_eq!(of(&sig), expected);
        }
    }

    #[test]
    fn parameters_are_named_without_the_receiver() {
        let sig = parse_quote!(fn f(&self, mut a: u8, (b, c): (u8, u8), _: u8, r#type: u8));
        assert_eq!(parameters(&sig), ["a", "(b, c)", "_", "type"]);
    }
}
