//! Pages for the browser: each is one file that has everything in it and needs no network.

use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::routing::get;

/// What all pages are put into.
const FRAME: &str = include_str!("page/frame.html");
/// What they share.
const STYLE: &str = include_str!("page/base.css");
const SCRIPT: &str = include_str!("page/base.js");

/// Nothing but what is in the page itself.
macro_rules! itself {
    () => {
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    };
}

/// What a page may fetch.
#[derive(Clone, Copy)]
pub(crate) enum Fetches {
    /// Nothing: all is in it.
    Nothing,
    /// What the one has that served it.
    FromHere,
}

impl Fetches {
    /// As browsers are told.
    fn policy(self) -> &'static str {
        match self {
            Self::Nothing => itself!(),
            Self::FromHere => concat!(itself!(), "; connect-src 'self'"),
        }
    }
}

/// What a page has of its own.
pub(crate) struct Page {
    pub(crate) title: &'static str,
    pub(crate) fetches: Fetches,
    pub(crate) style: &'static str,
    pub(crate) body: &'static str,
    pub(crate) script: &'static str,
}

impl Page {
    /// The whole page, with JSON for the script to show where its body has a place for it.
    pub(crate) fn with(&self, data: &str) -> String {
        // In a script element only what could end it has to be kept apart.
        let data = data.replace('<', "\\u003c");
        let body = filled(self.body, &[("data", &data)]);
        let parts = [
            ("policy", self.fetches.policy()),
            ("title", self.title),
            ("style", &[STYLE, self.style].concat()),
            ("body", &body),
            ("script", &[SCRIPT, self.script].concat()),
        ];
        filled(FRAME, &parts)
    }

    /// Serves it, once it is whole.
    pub(crate) fn served<S: Clone + Send + Sync + 'static>(&self, whole: String) -> Router<S> {
        let page = Bytes::from(whole);
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, self.fetches.policy()),
        ];
        Router::new().route("/", get(move || async move { (headers, page) }))
    }
}

/// A text with something in each of its places, which look like `{{this}}`. What is put in is not looked at again.
fn filled(text: &str, parts: &[(&str, &str)]) -> String {
    let mut whole = String::new();
    let mut pieces = text.split("{{");
    whole.extend(pieces.next());
    for piece in pieces {
        let part = piece.split_once("}}").and_then(|(name, rest)| {
            let part = parts.iter().find(|(place, _)| *place == name)?;
            Some((part.1, rest))
        });
        match part {
            Some((part, rest)) => whole.extend([part, rest]),
            None => whole.extend(["{{", piece]),
        }
    }
    whole
}
