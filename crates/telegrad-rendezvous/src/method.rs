//! Init methods: where the workers meet, and as what this one comes.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use crate::RendezvousError;

/// What is wrong with an init method.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It has no scheme or one that is not known.
    #[error("it starts with none of env://, tcp://, file:// and mem://")]
    Scheme,
    /// `env://` is followed by something.
    #[error("env:// takes the address from MASTER_ADDR and MASTER_PORT, so `{found}` must not follow it")]
    Env {
        /// What follows.
        found: String,
    },
    /// `tcp://` without a host.
    #[error("it names no host: it should be tcp://host:port")]
    NoHost,
    /// An IPv6 address that is not told apart from its port.
    #[error("an IPv6 address must be in brackets: tcp://[::1]:port")]
    Brackets,
    /// `tcp://` without a port.
    #[error("it names no port: it should be tcp://host:port")]
    NoPort,
    /// Port 0 on a worker that does not host the store.
    #[error("with port 0 the system chooses a port on rank 0, and rank {rank} cannot know which")]
    PortZero {
        /// This worker's rank.
        rank: u32,
    },
    /// `file://` without an absolute path.
    #[error("it names no file by its absolute path: it should be file:///path")]
    NoPath,
    /// `mem://` without a name.
    #[error("it names no world: it should be mem://name")]
    NoName,
    /// Something is not a number that it can be.
    #[error("{what} is `{found}`, which is not a whole number from 0 to {limit}")]
    Number {
        /// What should be a number.
        what: String,
        /// What is there.
        found: String,
        /// The largest that it could be.
        limit: u32,
    },
    /// The query has a key that is not known.
    #[error("it has the unknown key `{key}` after the `?`: only rank and world_size may follow")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// The query has a key twice.
    #[error("it has the key `{key}` twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
}

/// A place that all workers of a world know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeetingPoint {
    /// A store that rank 0 hosts. The host may be a name; it is looked up when it is needed, since
    /// in a cluster the name of rank 0 often comes into being with rank 0.
    Tcp {
        /// Name or address, an IPv6 address without its brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A file that all workers can open.
    File(PathBuf),
    /// A name in this process.
    Mem(String),
}

impl fmt::Display for MeetingPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Mem(name) => write!(f, "mem://{name}"),
        }
    }
}

/// An init method as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InitMethod {
    /// None for `env://`.
    meeting_point: Option<MeetingPoint>,
    rank: Option<u32>,
    world_size: Option<u32>,
}

/// Everything a worker must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Where the workers meet.
    pub meeting_point: MeetingPoint,
    /// This worker's number.
    pub rank: u32,
    /// How many there are.
    pub world_size: u32,
}

/// Finds out where the workers meet and as what this one comes: from the arguments, else from the
/// query of the URL, else from the environment.
pub fn resolve(
    url: &str,
    rank: Option<u32>,
    world_size: Option<u32>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Membership, RendezvousError> {
    let bad = |problem| RendezvousError::Url {
        url: url.to_owned(),
        problem,
    };
    let method = InitMethod::parse(url).map_err(bad)?;
    let number = |variable: &str, what: &str| {
        let otherwise = format!("no {what} was given in the options or the URL");
        parse_variable(variable, u32::MAX, &otherwise, env)
    };
    let rank = rank.or(method.rank).map_or_else(|| number("RANK", "rank"), Ok)?;
    let world_size = world_size
        .or(method.world_size)
        .map_or_else(|| number("WORLD_SIZE", "world size"), Ok)?;
    if world_size == 0 {
        return Err(RendezvousError::EmptyWorld);
    }
    if rank >= world_size {
        return Err(RendezvousError::Rank { rank, world_size });
    }
    let meeting_point = match method.meeting_point {
        Some(meeting_point) => meeting_point,
        None => from_env(env)?,
    };
    match meeting_point {
        MeetingPoint::Tcp { port: 0, .. } if rank != 0 => Err(bad(UrlError::PortZero { rank })),
        meeting_point => Ok(Membership {
            meeting_point,
            rank,
            world_size,
        }),
    }
}

impl InitMethod {
    fn parse(url: &str) -> Result<Self, UrlError> {
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

fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<MeetingPoint, RendezvousError> {
    let otherwise = "env:// was to find rank 0 through it; tcp://host:port needs no variable";
    let host = env("MASTER_ADDR").ok_or_else(|| unset("MASTER_ADDR", otherwise))?;
    // As people write an IPv6 address in a URL.
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(&host);
    if host.is_empty() {
        return Err(RendezvousError::InvalidVariable {
            variable: "MASTER_ADDR".into(),
            value: String::new(),
            wanted: "a host".into(),
        });
    }
    let port = parse_variable("MASTER_PORT", u16::MAX.into(), otherwise, env)?;
    Ok(MeetingPoint::Tcp {
        host: host.to_owned(),
        port: port as u16,
    })
}

fn parse_variable(
    variable: &str,
    limit: u32,
    otherwise: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<u32, RendezvousError> {
    let value = env(variable).ok_or_else(|| unset(variable, otherwise))?;
    parse_number(variable, value.trim(), limit).map_err(|_| RendezvousError::InvalidVariable {
        variable: variable.to_owned(),
        value,
        wanted: format!("a whole number from 0 to {limit}"),
    })
}

fn unset(variable: &str, otherwise: &str) -> RendezvousError {
    RendezvousError::UnsetVariable {
        variable: variable.to_owned(),
        otherwise: otherwise.to_owned(),
    }
}

fn parse_number(what: &str, text: &str, limit: u32) -> Result<u32, UrlError> {
    let number = text.parse().ok().filter(|&number| number <= limit);
    number.ok_or_else(|| UrlError::Number {
        what: what.to_owned(),
        found: text.to_owned(),
        limit,
    })
}
