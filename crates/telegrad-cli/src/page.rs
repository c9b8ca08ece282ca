//! Pages for the browser: each is one self-contained file.

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

/// The template of all pages.
const FRAME: &str = include_str!("page/frame.html");
/// Style and scripts that all pages share.
const STYLE: &str = include_str!("page/base.css");
const SCRIPT: [&str; 3] = [
    include_str!("page/numbers.js"),
    include_str!("page/elements.js"),
    include_str!("page/heat.js"),
];

/// A policy that allows only the contents of the page itself.
macro_rules! self_contained {
    () => {
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    };
}

/// Requests that a page may make.
#[derive(Clone, Copy)]
pub(crate) enum Fetches {
    /// None: the page has all its data.
    Nothing,
    /// Requests to the server of the page.
    SameOrigin,
}

impl Fetches {
    /// The content security policy.
    fn policy(self) -> &'static str {
        match self {
            Self::Nothing => self_contained!(),
            Self::SameOrigin => concat!(self_contained!(), "; connect-src 'self'"),
        }
    }
}

/// The specific parts of a page.
pub(crate) struct Page {
    pub(crate) title: &'static str,
    pub(crate) fetches: Fetches,
    pub(crate) style: &'static str,
    pub(crate) body: &'static str,
    /// Concatenated into one script, in dependency order.
    pub(crate) script: &'static [&'static str],
}

impl Page {
    /// Assembles the page.
    pub(crate) fn html(&self) -> String {
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

    /// Assembles the page with data for its script, in the placeholder of its body.
    pub(crate) fn with(&self, data: &impl Serialize) -> io::Result<String> {
        Ok(filled(&self.html(), &[("data", &packed(data)?)]))
    }

    /// The route of the assembled page.
    pub(crate) fn router<S: Clone + Send + Sync + 'static>(&self, html: String) -> Router<S> {
        let page = Bytes::from(html);
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, self.fetches.policy()),
        ];
        Router::new().route("/", get(move || async move { (headers, page) }))
    }
}

/// On a loopback address, restricts an app to requests whose `Host` is an IP address or `localhost`.
///
/// Protects against DNS rebinding: a foreign name that resolves to this machine would let a foreign page read the app
/// as its own origin. An app on another address may be reached by any name of the machine, so it accepts all.
pub(crate) fn guarded<S: Clone + Send + Sync + 'static>(app: Router<S>, listens_on: SocketAddr) -> Router<S> {
    if !listens_on.ip().to_canonical().is_loopback() {
        return app;
    }
    app.layer(middleware::from_fn(require_local_host))
}

async fn require_local_host(request: Request, next: Next) -> Response {
    if has_local_host(request.headers()) {
        return next.run(request).await;
    }
    let why = "Forbidden: open this page as localhost or by an IP address of this machine.\n";
    (StatusCode::FORBIDDEN, why).into_response()
}

/// Whether the `Host` header is an IP address or `localhost`.
fn has_local_host(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let host = host.host();
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    host.eq_ignore_ascii_case("localhost") || inner.unwrap_or(host).parse::<IpAddr>().is_ok()
}

/// Encodes data as JSON, compressed with gzip, in base64: recordings are large.
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

/// Replaces the placeholders of a template, such as `{{title}}`. Replacements are not expanded again.
fn filled(text: &str, parts: &[(&str, &str)]) -> String {
    let mut whole = String::new();
    let mut pieces = text.split("{{");
    whole.extend(pieces.next());
    for piece in pieces {
        let part = piece.split_once("}}").and_then(|(name, rest)| {
            let part = parts.iter().find(|(placeholder, _)| *placeholder == name)?;
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
    fn only_ip_addresses_and_localhost_are_local_hosts() {
        let is_local = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            has_local_host(&headers)
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
            assert!(is_local(host), "{host}");
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
            assert!(!is_local(host), "{host}");
        }
        assert!(!has_local_host(&HeaderMap::new()), "no Host header");
    }

    #[test]
    fn data_is_compressed_and_cannot_end_its_element() {
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
