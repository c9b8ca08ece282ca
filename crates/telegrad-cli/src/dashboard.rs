//! A page that shows a running world, and metrics for monitoring.

mod answer;
mod metrics;

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use telegrad::status::Status;
use tokio::sync::Mutex;

use crate::Error;
use crate::addresses::Addresses;
use crate::page::{Fetches, Page, guarded};
use crate::watch::{Discovery, WorldSelector};

/// The page, which requests its data from this server.
const PAGE: Page = Page {
    title: "Telegrad dashboard",
    fetches: Fetches::SameOrigin,
    style: include_str!("dashboard/page.css"),
    body: include_str!("dashboard/page.html"),
    script: &[
        include_str!("dashboard/page/format.js"),
        include_str!("dashboard/page/history.js"),
        include_str!("dashboard/page/polling.js"),
        include_str!("dashboard/page/lines.js"),
        include_str!("dashboard/page/charts.js"),
        include_str!("dashboard/page/workers.js"),
        include_str!("dashboard/page/calls.js"),
        include_str!("dashboard/page/alerts.js"),
    ],
};

/// Maximum age of a status: several viewers do not cause more requests to the workers.
const FRESH: Duration = Duration::from_millis(400);

/// Shared by all requests; one of them asks the workers while the others wait.
type Shared = Arc<Mutex<StatusCache>>;

struct StatusCache {
    selector: WorldSelector,
    discovery: Discovery,
    last: Workers,
    when: Option<Instant>,
}

/// The workers of the world, or the error of discovery them.
type Workers = Result<Arc<[Status]>, String>;

impl StatusCache {
    fn refresh(&mut self) -> Workers {
        if self.when.is_none_or(|when| when.elapsed() >= FRESH) {
            let worlds = self
                .discovery
                .worlds(self.selector)
                .map_err(|error| error.to_string());
            self.last = worlds.map(|worlds| largest(worlds).into());
            self.when = Some(Instant::now());
        }
        self.last.clone()
    }
}

/// Selects the largest world of a program, regardless of how many of its workers answer.
fn largest(worlds: Vec<Vec<Status>>) -> Vec<Status> {
    let size = |workers: &Vec<Status>| workers.first().map(|first| (first.size, Reverse(first.world)));
    worlds.into_iter().max_by_key(size).unwrap_or_default()
}

/// The current workers; empty while no worker answers.
async fn workers(shared: &Shared) -> Workers {
    let mut cache = shared.clone().lock_owned().await;
    // Blocking: a worker that does not answer takes time, in which other requests are served.
    let workers = tokio::task::spawn_blocking(move || cache.refresh()).await;
    workers.unwrap_or_else(|error| Err(error.to_string()))
}

/// Serves the page of the world that this process starts, on a thread of its own. Returns the address.
///
/// # Errors
/// When none of the addresses is available.
pub(crate) fn serve(addresses: &Addresses) -> Result<SocketAddr, Error> {
    let listener = addresses.listen()?;
    let address = listener.local_addr()?;
    let shared: Shared = Arc::new(Mutex::new(StatusCache {
        selector: WorldSelector::process(std::process::id()),
        discovery: Discovery::default(),
        last: Ok(Arc::default()),
        when: None,
    }));
    let app = PAGE
        .router(PAGE.html())
        .route("/status.json", get(status))
        .route("/metrics", get(metrics))
        .with_state(shared);
    let app = guarded(app, address);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("dashboard".into())
        .spawn(move || {
            runtime.block_on(async {
                // Runs until the process ends.
                if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                    let _ = axum::serve(listener, app).await;
                }
            });
        })?;
    Ok(address)
}

async fn status(State(shared): State<Shared>) -> Response {
    match workers(&shared).await {
        Ok(workers) => Json(answer::of(&workers)).into_response(),
        Err(error) => failure(error),
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    match workers(&shared).await {
        Ok(workers) => {
            let kind = [(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)];
            match metrics::text(&workers) {
                Ok(text) => (kind, text).into_response(),
                Err(error) => failure(error.to_string()),
            }
        }
        Err(error) => failure(error),
    }
}

/// An error response: a failed request to the workers must not look like an empty world.
fn failure(error: String) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, error + "\n").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(world: u64, size: usize) -> Status {
        Status {
            world,
            rank: 0,
            name: "a".into(),
            size,
            process: 1,
            ..Status::default()
        }
    }

    #[test]
    fn the_largest_world_is_selected_regardless_of_answers() {
        let small = || vec![worker(1, 2), worker(1, 2)];
        let large = || vec![worker(2, 3)];
        assert_eq!(largest(vec![small(), large()]), large());
        assert_eq!(largest(vec![large(), small()]), large());
        let other = || vec![worker(3, 3), worker(3, 3)];
        assert_eq!(largest(vec![other(), large()]), large(), "the choice is stable");
        assert_eq!(largest(Vec::new()), []);
    }
}
