//! Clusters whose members are threads of this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_rpc::World;

use crate::cluster::{Cluster, Rendezvous};
use crate::member::{DONE, Member, StoreLocation};
use crate::report::{self, Failure};

/// Time for members to notice that their world has ended. Threads of members that do not are leaked, because a thread
/// cannot be ended from outside.
const GRACE: Duration = Duration::from_secs(2);

pub(crate) fn run(cluster: &Arc<Cluster>, body: impl Fn(Member) + Send + Sync + 'static) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let directory =
        (cluster.rendezvous == Rendezvous::File).then(|| tempfile::tempdir().expect("a temporary directory"));
    let store = match &directory {
        Some(directory) => StoreLocation::Dir(directory.path().into()),
        None => StoreLocation::Mem(format!("testkit-{}", NEXT.fetch_add(1, Relaxed))),
    };
    let body = Arc::new(body);
    let worlds: Arc<Mutex<Vec<World>>> = Arc::default();
    let (sender, receiver) = channel();
    for rank in 0..cluster.names.len() as u32 {
        let (cluster, store, body) = (cluster.clone(), store.clone(), body.clone());
        let (worlds, sender) = (worlds.clone(), sender.clone());
        let thread = std::thread::Builder::new().name(cluster.names[rank as usize].clone());
        let work = move || {
            let on_join = move |world: &World| worlds.lock().push(world.clone());
            let member = Member::new(rank, cluster, store, on_join);
            let ended = catch_unwind(AssertUnwindSafe(|| body(member)));
            let _ = sender.send((rank, ended.map_err(|panic| report::panic_text(&*panic))));
        };
        thread.spawn(work).expect("a thread for every member");
    }
    drop(sender);

    let mut unfinished: Vec<_> = (0..cluster.names.len() as u32).collect();
    let mut failures = Vec::new();
    let mut limit = None;
    let mut deadline = Instant::now() + cluster.time_limit;
    while !unfinished.is_empty() {
        let Ok((rank, ended)) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        else {
            if !failures.is_empty() || limit.is_some() {
                break;
            }
            limit = Some((cluster.time_limit, unfinished.clone()));
            deadline = Instant::now() + GRACE;
            end(&worlds);
            continue;
        };
        unfinished.retain(|&other| other != rank);
        let expected = cluster.may_die.contains(&rank);
        match ended {
            Err(how) if !expected => {
                if failures.is_empty() && limit.is_none() {
                    deadline = Instant::now() + GRACE;
                    end(&worlds);
                }
                failures.push(Failure {
                    rank,
                    how: format!("panicked: {how}"),
                });
            }
            Err(_) => cluster.board.post(DONE, &rank.to_string()),
            Ok(()) => {}
        }
    }
    end(&worlds);
    let (limit, late) = limit.unzip();
    if limit.is_some() {
        // These failures only result from the end of the world.
        failures.clear();
    }
    if limit.is_some() || !failures.is_empty() {
        panic!(
            "\n{}",
            report::text(&cluster.names, &failures, &late.unwrap_or_default(), limit, &[])
        );
    }
}

/// Ends all workers, so that none keeps waiting for one that failed.
fn end(worlds: &Mutex<Vec<World>>) {
    let worlds = std::mem::take(&mut *worlds.lock());
    for world in worlds {
        world.shutdown_now();
    }
}
