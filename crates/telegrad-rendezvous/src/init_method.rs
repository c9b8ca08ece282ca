//! Init methods: the URLs that describe a meeting point.

use thiserror::Error;

use crate::MeetingPoint;

/// What is wrong with an init method.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is missing or unknown.
    #[error("it must start with env://, tcp://, file:// or mem://")]
    Scheme,
    /// Something follows `env://`.
    #[error("env:// takes the address from MASTER_ADDR and MASTER_PORT, so `{found}` must not follow it")]
    Env {
        /// What follows.
        found: String,
    },
    /// `tcp://` lacks a host.
    #[error("the host is missing; write tcp://host:port")]
    NoHost,
    /// An IPv6 address lacks its brackets.
    #[error("an IPv6 address must be in brackets: tcp://[::1]:port")]
    Brackets,
    /// `tcp://` lacks a port.
    #[error("the port is missing; write tcp://host:port")]
    NoPort,
    /// Port 0 on a worker that does not host the store.
    #[error("port 0 lets rank 0 choose a free port, which rank {rank} cannot know; give both the same port")]
    PortZero {
        /// This worker's rank.
        rank: u32,
    },
    /// `file://` lacks an absolute path.
    #[error("the absolute path of a file is missing; write file:///path")]
    NoPath,
    /// `mem://` lacks a name.
    #[error("the name is missing; write mem://name")]
    NoName,
    /// A number is malformed or too large.
    #[error("{what} is `{found}`, which is not a whole number from 0 to {limit}")]
    Number {
        /// What should be a number.
        what: String,
        /// What is there.
        found: String,
        /// The largest value allowed.
        limit: u32,
    },
    /// The query has an unknown key.
    #[error("unknown key `{key}` after the `?`: only rank and world_size are allowed")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// The query has a key twice.
    #[error("the key `{key}` appears twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
}

/// A parsed init method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InitMethod {
    /// None for `env://`.
    pub(crate) meeting_point: Option<MeetingPoint>,
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
}

impl InitMethod {
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let meeting_point = match scheme {
            "env" if rest.is_empty() => None,
            "env" => {
                return Err(UrlError::Env {
                    found: rest.to_owned(),
                });
            }
            "tcp" => Some(parse_tcp(rest)?),
            "file" if rest.starts_with('/') && !rest.ends_with('/') => Some(MeetingPoint::File(rest.into())),
            "file" => return Err(UrlError::NoPath),
            "mem" if rest.is_empty() => return Err(UrlError::NoName),
            "mem" => Some(MeetingPoint::Mem(rest.to_owned())),
            _ => return Err(UrlError::Scheme),
        };
        let mut method = Self {
            meeting_point,
            rank: None,
            world_size: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match key {
                "rank" => &mut method.rank,
                "world_size" => &mut method.world_size,
                _ => return Err(UrlError::UnknownKey { key: key.to_owned() }),
            };
            if slot.replace(parse_number(key, value, u32::MAX)?).is_some() {
                return Err(UrlError::DuplicateKey { key: key.to_owned() });
            }
        }
        Ok(method)
    }
}

fn parse_tcp(rest: &str) -> Result<MeetingPoint, UrlError> {
    // Many programs put a slash behind the port of a URL.
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(UrlError::Brackets)?,
        None => rest.find(':').map_or((rest, ""), |colon| rest.split_at(colon)),
    };
    let port = match port.strip_prefix(':') {
        None | Some("") => "",
        Some(port) if port.contains(':') => return Err(UrlError::Brackets),
        Some(port) => port,
    };
    match (host, port) {
        ("", _) => Err(UrlError::NoHost),
        (_, "") => Err(UrlError::NoPort),
        (host, port) => {
            let port = parse_number("the port", port, u16::MAX.into())?;
            // The limit is that of the type.
            Ok(MeetingPoint::Tcp {
                host: host.to_owned(),
                port: port as u16,
            })
        }
    }
}

/// Parses a whole number from 0 to `limit`; `what` names it in the error.
pub(crate) fn parse_number(what: &str, text: &str, limit: u32) -> Result<u32, UrlError> {
    let number = text.parse().ok().filter(|&number| number <= limit);
    number.ok_or_else(|| UrlError::Number {
        what: what.to_owned(),
        found: text.to_owned(),
        limit,
    })
}
