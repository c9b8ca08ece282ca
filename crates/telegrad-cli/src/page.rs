//! Pages for the browser: each is one file that has everything in it and needs no network.

use std::io::{self, BufWriter, IntoInnerError};
use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::prelude::BASE64_STANDARD as STANDARD;
use base64::write::EncoderStringWriter;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

/// What all pages are put into.
const FRAME: &str = include_str!("page/frame.html");
/// What they share.
const STYLE: &str = include_str!("page/base.css");
const SCRIPT: [&str; 3] = [
    include_str!("page/numbers.js"),
    include_str!("page/elements.js"),
    include_str!("page/heat.js"),
];

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
    /// One after the other they are one script: what comes first is known to those that follow.
    pub(crate) script: &'static [&'static str],
}

impl Page {
    /// The whole page.
    pub(crate) fn whole(&self) -> String {
        let script = [&SCRIPT, self.script].concat().join("\n");
        let parts = [
            ("policy", self.fetches.policy()),
            ("title", self.title),
            ("style", &[STYLE, self.style].concat()),
            ("body", self.body),
            ("script", &script),
        ];
        filled(FRAME, &parts)
    }

    /// The whole page, with something for its script to show where its body has a place for it.
    pub(crate) fn with(&self, data: &impl Serialize) -> io::Result<String> {
        Ok(filled(&self.whole(), &[("data", &packed(data)?)]))
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

/// Lets a server that only this machine reaches answer only those who call it by an address, or as `localhost`.
///
/// Names of elsewhere can be made to lead here: a page of theirs that a person looks at could then read what is served as if
/// it were its own. Where others are served, too, they may know the machine by any name, and nothing is held back from them.
pub(crate) fn guarded<S: Clone + Send + Sync + 'static>(app: Router<S>, listens_on: SocketAddr) -> Router<S> {
    if !listens_on.ip().to_canonical().is_loopback() {
        return app;
    }
    app.layer(middleware::from_fn(only_by_address))
}

async fn only_by_address(request: Request, next: Next) -> Response {
    if is_called_by_address(request.headers()) {
        return next.run(request).await;
    }
    let why = "This is only served to this machine, by its address or as localhost.\n";
    (StatusCode::FORBIDDEN, why).into_response()
}

/// Whether whoever asks has found this under an address, or as `localhost`, and not under a name of somebody else.
fn is_called_by_address(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let host = host.host();
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    host.eq_ignore_ascii_case("localhost") || inner.unwrap_or(host).parse::<IpAddr>().is_ok()
}

/// Something as JSON, in gzip, in letters and digits: recordings are large.
fn packed(data: &impl Serialize) -> io::Result<String> {
    let letters = EncoderStringWriter::new(&STANDARD);
    let mut packer = GzEncoder::new(BufWriter::new(letters), Compression::default());
    serde_json::to_writer(BufWriter::new(&mut packer), data)?;
    let letters = packer
        .finish()?
        .into_inner()
        .map_err(IntoInnerError::into_error)?;
    Ok(letters.into_inner())
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

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_not_somebody_elses_name() {
        let is_let_in = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            is_called_by_address(&headers)
        };
        for host in [
            "127.0.0.1",
            "127.0.0.1:8000",
            "[::1]",
            "[::1]:8000",
            "192.168.0.7:80",
            "localhost",
            "LocalHost:8000",
        ] {
            assert!(is_let_in(host), "{host}");
        }
        for host in [
            "",
            "x",
            "evil.example",
            "evil.example:8000",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8000",
            "notlocalhost",
            "localhost:8000@evil.example",
        ] {
            assert!(!is_let_in(host), "{host}");
        }
        assert!(!is_called_by_address(&HeaderMap::new()), "nobody said");
    }

    #[test]
    fn data_is_packed_and_cannot_end_the_element_that_it_is_in() {
        let page = Page {
            title: "t",
            fetches: Fetches::Nothing,
            style: "",
            body: "<script>{{data}}</script>",
            script: &[],
        };
        let data = vec!["</script><b>{{title}}"; 1000];
        let whole = page.with(&data).unwrap();
        assert!(whole.contains("<title>t</title>") && !whole.contains("<b>"));
        let (_, rest) = whole.split_once("<script>").unwrap();
        let (letters, _) = rest.split_once("</script>").unwrap();
        assert!(letters.len() < 1000, "{}", letters.len());
        let packed = STANDARD.decode(letters).unwrap();
        let read: Vec<String> = serde_json::from_reader(flate2::read::GzDecoder::new(&*packed)).unwrap();
        assert_eq!(read, data);
    }
}
