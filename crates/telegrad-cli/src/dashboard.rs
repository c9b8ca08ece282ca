//! A page that shows a world while it runs, and numbers for monitoring.

mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use telegrad::status::{Latency, Status};
use tokio::sync::Mutex;

use crate::Error;
use crate::page::{Fetches, Page, guarded};
use crate::watch::{Chain, Chains, Waits, Which, all, silent};

/// What shows the world: it asks for the rest.
const PAGE: Page = Page {
    title: "Telegrad dashboard",
    fetches: Fetches::FromHere,
    style: include_str!("dashboard/page.css"),
    body: include_str!("dashboard/page.html"),
    script: &[
        include_str!("dashboard/page/words.js"),
        include_str!("dashboard/page/history.js"),
        include_str!("dashboard/page/asking.js"),
        include_str!("dashboard/page/lines.js"),
        include_str!("dashboard/page/charts.js"),
        include_str!("dashboard/page/workers.js"),
        include_str!("dashboard/page/calls.js"),
        include_str!("dashboard/page/all.js"),
    ],
};

/// How old an answer may be: several who look at once do not make the workers answer more often.
const FRESH: Duration = Duration::from_millis(400);

/// Chains of waits that are worth showing, and calls that ought to have begun.
const OLD: Duration = Duration::from_secs(1);

/// Looks for everybody who asks: one look at a time, which the others wait for.
type Shared = Arc<Mutex<Looking>>;

struct Looking {
    which: Which,
    last: Arc<[Status]>,
    when: Option<Instant>,
}

/// What can be seen now; nothing yet, or no more, when no worker answers.
async fn look(shared: &Shared) -> Arc<[Status]> {
    let mut looking = shared.lock().await;
    if looking.when.is_none_or(|when| when.elapsed() >= FRESH) {
        let which = looking.which;
        // Asking takes a while where a worker does not answer. The page and all others are served meanwhile.
        let seen = tokio::task::spawn_blocking(move || all(which).unwrap_or_default()).await;
        // A program may have several worlds at once; the largest is what it is about.
        let largest = seen.unwrap_or_default().into_iter().max_by_key(Vec::len);
        looking.last = largest.unwrap_or_default().into();
        looking.when = Some(Instant::now());
    }
    looking.last.clone()
}

/// Serves the page on a thread of its own, for the world that this process starts; where it is.
///
/// # Errors
/// When the address cannot be listened on.
pub(crate) fn serve(address: SocketAddr) -> Result<SocketAddr, Error> {
    let listener = std::net::TcpListener::bind(address)
        .map_err(|error| format!("cannot listen on {address} for the dashboard: {error}"))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let shared: Shared = Arc::new(Mutex::new(Looking {
        which: Which::of(std::process::id()),
        last: Arc::default(),
        when: None,
    }));
    let app = PAGE
        .served(PAGE.whole())
        .route("/status.json", get(status))
        .route("/metrics", get(numbers))
        .with_state(shared);
    let app = guarded(app, address);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("dashboard".into())
        .spawn(move || {
            runtime.block_on(async {
                // It ends with the process.
                if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                    let _ = axum::serve(listener, app).await;
                }
            });
        })?;
    Ok(address)
}

async fn status(State(shared): State<Shared>) -> Json<Value> {
    Json(as_json(&look(&shared).await))
}

async fn numbers(State(shared): State<Shared>) -> Response {
    let text = metrics::text(&look(&shared).await);
    (
        StatusCode::OK,
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        text,
    )
        .into_response()
}

/// What the page shows. Counters and latencies are since the start of each worker: whoever looks twice knows what has changed, however
/// many others look.
fn as_json(workers: &[Status]) -> Value {
    let Waits {
        chains, more, cycles, ..
    } = Chains::new(workers).older(OLD);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "time": time.as_secs_f64(),
        "world": workers.iter().map(of_worker).collect::<Vec<_>>(),
        "silent": silent(workers),
        "chains": chains.iter().map(of_chain).collect::<Vec<_>>(),
        "more_chains": more,
        "cycles": cycles,
    })
}

fn of_chain(chain: &Chain) -> Value {
    let calls = chain.links.iter().map(|link| {
        json!({
            "function": link.function,
            "on": link.on,
            "age": link.age.as_secs_f64(),
            "state": link.state.name(),
        })
    });
    json!({
        "from": chain.from,
        "age": chain.age.as_secs_f64(),
        "is_cycle": chain.is_cycle,
        "text": chain.to_string(),
        "calls": calls.collect::<Vec<_>>(),
    })
}

fn of_worker(status: &Status) -> Value {
    let latency = status.latency.iter().map(|latency| {
        let counts = latency.counts.iter();
        let counts = counts.map(|(bucket, count)| (Latency::longest(*bucket).as_secs_f64(), count));
        json!({ "to": latency.to, "counts": counts.collect::<Vec<_>>() })
    });
    let made = status.made.iter().map(|made| {
        json!({
            "call": made.call,
            "function": made.function,
            "callee": made.callee,
            "age": made.age.as_secs_f64(),
            "within": made.within,
            "is_awaited": made.is_awaited,
        })
    });
    let served = status.served.iter().map(|served| {
        json!({
            "caller": served.caller,
            "call": served.call,
            "function": served.function,
            "age": served.age.as_secs_f64(),
            "has_begun": served.has_begun,
            "makes": served.makes.is_some(),
        })
    });
    let counters: serde_json::Map<String, Value> = metrics::of(&status.counters)
        .into_iter()
        .map(|metric| (metric.name.to_owned(), metric.value.into()))
        .collect();
    json!({
        "rank": status.rank,
        "name": status.name,
        "process": status.process,
        "size": status.size,
        "time": status.time.as_secs_f64(),
        "counters": counters,
        "latency": latency.collect::<Vec<_>>(),
        "made": made.collect::<Vec<_>>(),
        "served": served.collect::<Vec<_>>(),
    })
}
