//! A worker's place in a world.

use crate::init_method::{InitMethod, parse_number};
use crate::{MeetingPoint, RendezvousError, UrlError};

/// Everything a worker needs to meet the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Where the members meet.
    pub meeting_point: MeetingPoint,
    /// This worker's rank.
    pub rank: u32,
    /// How many members the world has.
    pub world_size: u32,
}

/// Finds the meeting point, rank and world size: in the arguments, else in the URL, else in the environment.
///
/// `env` looks up an environment variable.
///
/// # Errors
/// When the URL or a variable is invalid, a value is found nowhere, or the values contradict each other.
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

fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<MeetingPoint, RendezvousError> {
    let otherwise = "env:// needs it to find rank 0; set it, or use tcp://host:port";
    let host = env("MASTER_ADDR").ok_or_else(|| unset("MASTER_ADDR", otherwise))?;
    // The brackets of an IPv6 address in a URL.
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
