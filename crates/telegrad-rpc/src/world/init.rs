//! Joining a world.
//!
//! Every member opens its listeners, claims its rank in the store with a card of their addresses, and waits for the sheet of
//! all cards, which rank 0 stores when it has collected them. With the sheet, a member can call every other. A claim ends
//! with its member, so rank 0 has all cards only while all members live; a restarted member claims its rank again.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_net::{Address, Identity, Listener, host_id, listen};
use telegrad_rendezvous::{MeetingPoint, Membership, RendezvousError, Store};
use telegrad_wire::{Decoder, Encoder, Incarnation, Wire, peer_text};

use super::status;
use crate::error::{Error, Result};
use crate::link::{Members, Transport};
use crate::membership::{Card, Roster};
use crate::time::after;
use crate::types::WorkerInfo;
use crate::worker::{Options, RankClaim, Worker, World};

/// Joins the world that the environment describes: `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and
/// `MASTER_PORT`, as `telegrad run` sets them.
///
/// # Errors
/// As [`init_with`].
pub fn init(name: &str) -> Result<World> {
    init_with(name, Options::default())
}

/// Joins a world under `name`. Returns when all members have joined and each can call every other.
///
/// # Errors
/// When the name is invalid or taken, an option is out of range, rank or world size is unknown, the meeting point cannot be
/// reached, or members are missing at the rendezvous time limit. The error names the cause.
pub fn init_with(name: &str, mut options: Options) -> Result<World> {
    check_name(name)?;
    if let Some(problem) = options.problem() {
        return Err(Error::Init(problem));
    }
    let env = |variable: &str| std::env::var(variable).ok();
    let resolved =
        telegrad_rendezvous::resolve(&options.init_method, options.rank, options.world_size, &env)?;
    let deadline = after(options.rendezvous_timeout);
    let prefix = format!("world/{}/", RankClaim::generation(&resolved));
    loop {
        match join(name, &mut options, &resolved, &prefix, deadline) {
            // The server may have belonged to an ending world at the same meeting point: retry.
            Err(Error::Rendezvous(error))
                if resolved.rank > 0 && matches!(*error, RendezvousError::ServerLost { .. }) => {}
            other => return other,
        }
    }
}

fn join(
    name: &str,
    options: &mut Options,
    resolved: &Membership,
    prefix: &str,
    deadline: Instant,
) -> Result<World> {
    let mut opened = telegrad_rendezvous::open(resolved, options.store.take(), deadline)?;
    let identity = Identity {
        name: name.into(),
        rank: resolved.rank,
        incarnation: Incarnation(random()?),
    };
    let worker = Arc::new_cyclic(|weak| Worker::new(weak.clone(), identity.clone(), options));
    let listeners = open_listeners(&worker, resolved, &*opened.store, options)?;
    let card = Card {
        identity,
        // Rank 0 chooses the id of the world; the others read it from its card.
        world: if resolved.rank == 0 { random()? } else { 0 },
        addresses: listeners
            .iter()
            .map(|listener| listener.address().clone())
            .collect(),
        host: host_id(),
        process: std::process::id(),
    };
    worker.set_listeners(listeners, RankClaim::new(&mut opened, resolved));
    let members = (prefix, resolved.world_size);
    let world = exchange_cards(&*opened.store, &card, members, deadline, options).and_then(|sheet| {
        // From here on the world counts as a generation, even if it fails below.
        worker.complete_rendezvous();
        let roster = Roster::read(&sheet, &opened.store.describe())?;
        let known = roster.card(resolved.rank);
        if known.is_none_or(|known| known.identity != card.identity) {
            // The member that had this rank has left since, or stopped waiting at that moment.
            let rank = resolved.rank;
            return Err(Error::Init(format!(
                "the world at {} was complete before worker `{name}` joined, with another worker as rank {rank}: a running world \
                 takes no new members; restart all of its workers",
                opened.store.describe()
            )));
        }
        record_to_file(&worker, roster.world.0);
        worker.set_members(Members::new(roster));
        if options.show_status || std::env::var_os(status::VARIABLE).is_some_and(is_enabled) {
            worker.set_visible();
            status::publish(&worker);
        }
        Ok(World::new(worker.clone()))
    });
    if world.is_err() {
        worker.close("the world was not completed");
    }
    world
}

/// Whether the value of an environment variable enables its option.
fn is_enabled(value: OsString) -> bool {
    !value.is_empty() && value != "0"
}

/// Records the worker to a file, if the environment asks for a recording of the program.
fn record_to_file(worker: &Arc<Worker>, world: u64) {
    let Some(folder) = std::env::var_os(telegrad_trace::FOLDER_ENV) else {
        return;
    };
    let Identity {
        name,
        rank,
        incarnation,
    } = &worker.identity;
    match telegrad_trace::Sink::create(folder.as_ref(), world, (*rank, name, incarnation.0)) {
        Ok(sink) => {
            let shapes = std::env::var_os(telegrad_trace::SHAPES_ENV);
            worker.recorder.write_to(sink, shapes.is_some_and(is_enabled));
        }
        Err(error) => tracing::warn!(worker = worker.name(), %error, "the recording could not be started"),
    }
}

fn check_name(name: &str) -> Result<()> {
    let wrong = |problem| Error::Init(format!("`{name}` cannot be the name of a worker: it {problem}"));
    WorkerInfo::name_problem(name).map_or(Ok(()), |problem| Err(wrong(problem)))
}

pub(crate) fn random() -> Result<u64> {
    getrandom::u64()
        .map_err(|error| Error::Init(format!("cannot get a random number from the system: {error}")))
}

/// How long a member waits for a taken rank. Long enough for a killed member's claim to end; short, so that two members with
/// the same rank fail soon.
const CLAIM_LIMIT: Duration = Duration::from_secs(1);

/// Claims this worker's rank and waits until all members have; returns all cards, concatenated by rank.
///
/// Rank 0 collects the cards and stores them as one sheet for the others. If each of n members asked for every card, the
/// store would look up n² of them.
pub(crate) fn exchange_cards(
    store: &dyn Store,
    card: &Card,
    (prefix, size): (&str, u32),
    deadline: Instant,
    options: &Options,
) -> Result<Vec<u8>> {
    let rank = card.identity.rank;
    let key = |rank: u32| format!("{prefix}{rank}/card");
    claim(store, card, &key(rank), deadline)?;
    // The key includes the size, so that members with different sizes do not form a world.
    let sheet = format!("{prefix}sheet/{size}");
    if rank > 0 {
        match store.get_all(std::slice::from_ref(&sheet), deadline) {
            Ok(sheet) => return Ok(sheet.concat()),
            // Ask for the cards, to name the missing members.
            Err(RendezvousError::MissingKeys { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let keys: Vec<_> = (0..size).map(key).collect();
    let missing = match store.get_all(&keys, deadline) {
        Ok(cards) if rank == 0 => {
            let cards = cards.concat();
            // An earlier rank 0 may have completed the world.
            let before = store.insert(&sheet, &cards)?;
            return Ok(before.unwrap_or(cards));
        }
        // The last card has just arrived, but not the sheet of rank 0.
        Ok(_) => vec![keys[0].clone()],
        Err(RendezvousError::MissingKeys { keys, .. }) => keys,
        Err(error) => return Err(error.into()),
    };
    // Release the claim, for another attempt with this rank.
    store.release(&keys[rank as usize])?;
    let ranks: Vec<_> = missing.iter().filter_map(|key| key.rsplit('/').nth(1)).collect();
    Err(Error::Init(format!(
        "the world of {size} workers was not complete after {:?}: still missing rank {}",
        options.rendezvous_timeout.unwrap_or_default(),
        ranks.join(", ")
    )))
}

/// Claims a rank by its key.
fn claim(store: &dyn Store, card: &Card, key: &str, deadline: Instant) -> Result<()> {
    let mut encoder = Encoder::new();
    card.encode(&mut encoder);
    let payload = encoder.finish().map_err(|error| Error::Init(error.to_string()))?;
    let until = deadline.min(Instant::now() + CLAIM_LIMIT);
    loop {
        let Some(other) = store.claim(key, &payload.body)? else {
            return Ok(());
        };
        if Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let other = Card::decode(&mut Decoder::new(&other)).map_err(|error| {
            let store = store.describe();
            Error::Init(format!("the store at {store} has an invalid card: {error}"))
        })?;
        let Identity { name, rank, .. } = &card.identity;
        let other = peer_text(&other.identity.name);
        return Err(Error::Init(format!(
            "worker `{name}` cannot join as rank {rank}, which worker `{other}` has already: give each worker its own rank"
        )));
    }
}

/// Opens a listener for each wanted transport, the fastest first.
fn open_listeners(
    worker: &Arc<Worker>,
    resolved: &Membership,
    store: &dyn Store,
    options: &Options,
) -> Result<Vec<Listener>> {
    let one_process = matches!(resolved.meeting_point, MeetingPoint::Mem(_));
    let wanted = |transport| match options.transport {
        Transport::Auto => transport == Transport::Mem || !one_process,
        chosen => chosen == transport,
    };
    // Unique on the host across worlds, because the incarnation is random.
    let unique = format!("telegrad-{:x}", worker.identity.incarnation.0);
    let mut addresses = Vec::new();
    if wanted(Transport::Mem) {
        addresses.push(Address::Mem(unique.clone()));
    }
    if wanted(Transport::Unix) || wanted(Transport::Shared) {
        addresses.push(Address::Unix(unique));
    }
    if wanted(Transport::Tcp) {
        addresses.push(Address::Tcp(SocketAddr::new(ip_address(store, options)?, 0)));
    }
    let mut listeners = Vec::new();
    for address in addresses {
        let host = Arc::downgrade(worker);
        let listener = listen(&address, host, &|| worker.poller())
            .map_err(|error| Error::Init(format!("cannot listen on {address}: {error}")))?;
        tracing::info!(worker = %worker.identity.name, address = %listener.address(), "listening");
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Returns the address to listen on and to announce.
fn ip_address(store: &dyn Store, options: &Options) -> Result<IpAddr> {
    let env = |variable| std::env::var(variable).ok().filter(|value| !value.is_empty());
    if let Some(ip) = options.address {
        return Ok(ip);
    }
    if let Some(interface) = &options.interface {
        return ip_of(interface);
    }
    if let Some(text) = env("TELEGRAD_ADDRESS") {
        return text
            .parse()
            .map_err(|_| Error::Init(format!("TELEGRAD_ADDRESS is `{text}`, not an IP address")));
    }
    if let Some(interface) = env("TELEGRAD_INTERFACE") {
        return ip_of(&interface);
    }
    // Loopback if the members meet there, so that no port is open to other hosts.
    Ok(store.local_ip().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

fn ip_of(interface: &str) -> Result<IpAddr> {
    let all = if_addrs::get_if_addrs()
        .map_err(|error| Error::Init(format!("cannot list the network interfaces: {error}")))?;
    let of_it = all.iter().filter(|found| found.name == interface);
    // Prefer IPv4, because IPv6 addresses of an interface are often link-local.
    of_it
        .map(|found| found.ip())
        .min_by_key(IpAddr::is_ipv6)
        .ok_or_else(|| {
            let mut names: Vec<_> = all.iter().map(|found| found.name.clone()).collect();
            names.dedup();
            Error::Init(format!(
                "there is no network interface `{interface}` with an address; choose one of {}",
                names.join(", ")
            ))
        })
}
