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
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Error;
use crate::page::{Fetches, Page};
use crate::watch::{Chains, Look, Seen, Watch, Which};

/// What shows the world: it asks for the rest.
const PAGE: Page = Page {
    title: "Telegrad dashboard",
    fetches: Fetches::FromHere,
    style: include_str!("dashboard/page.css"),
    body: include_str!("dashboard/page.html"),
    script: include_str!("dashboard/page.js"),
};

/// How old an answer may be: several who look at once do not make the workers answer more often.
const FRESH: Duration = Duration::from_millis(400);

/// Chains of waits that are worth showing, and calls that ought to have begun.
const OLD: Duration = Duration::from_secs(1);

/// Looks for everybody who asks.
type Shared = Arc<Mutex<Looking>>;

struct Looking {
    watch: Watch,
    last: Arc<Look>,
    when: Option<Instant>,
}

impl Looking {
    /// What can be seen now; nothing yet, or no more, when no worker answers.
    fn look(&mut self) -> Arc<Look> {
        if self.when.is_none_or(|when| when.elapsed() >= FRESH) {
            self.last = Arc::new(self.watch.look().unwrap_or_default());
            self.when = Some(Instant::now());
        }
        self.last.clone()
    }
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
        watch: Watch::new(Which::Of(std::process::id())),
        last: Arc::default(),
        when: None,
    }));
    let app = PAGE
        .served(PAGE.with(""))
        .route("/status.json", get(status))
        .route("/metrics", get(numbers))
        .with_state(shared);
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
    let look = shared.lock().look();
    Json(as_json(&look))
}

async fn numbers(State(shared): State<Shared>) -> Response {
    let look = shared.lock().look();
    let text = metrics::text(&look);
    (
        StatusCode::OK,
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        text,
    )
        .into_response()
}

/// What the page shows.
fn as_json(look: &Look) -> Value {
    let statuses = look.statuses();
    let chains = Chains::new(&statuses);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "time": time.as_secs_f64(),
        "world": look.workers.iter().map(of_worker).collect::<Vec<_>>(),
        "silent": look.silent,
        "chains": chains.older(OLD).iter().map(ToString::to_string).collect::<Vec<_>>(),
        "cycles": chains.cycles(OLD),
    })
}

fn of_worker(seen: &Seen) -> Value {
    let status = &seen.status;
    let latency = seen.latency.iter().map(|latency| {
        let seconds = |share: f64| latency.percentile(share).map(|time| time.as_secs_f64());
        json!({ "to": latency.to, "count": latency.count(), "p50": seconds(0.5), "p99": seconds(0.99) })
    });
    let made = status.made.iter().map(|made| {
        json!({
            "call": made.call,
            "function": made.function,
            "callee": made.callee,
            "age": made.age.as_secs_f64(),
            "within": made.within,
        })
    });
    let served = status.served.iter().map(|served| {
        json!({
            "caller": served.caller,
            "call": served.call,
            "function": served.function,
            "age": served.age.as_secs_f64(),
            "has_begun": served.has_begun,
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
        "counters": counters,
        "latency": latency.collect::<Vec<_>>(),
        "made": made.collect::<Vec<_>>(),
        "served": served.collect::<Vec<_>>(),
    })
}
