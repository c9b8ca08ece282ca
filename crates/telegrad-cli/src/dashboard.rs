//! A page that shows a world while it runs, and numbers for monitoring.

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
use crate::watch::{Asking, Which};

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

/// Looks for everybody who asks: one look at a time, which the others wait for.
type Shared = Arc<Mutex<Looking>>;

struct Looking {
    which: Which,
    asking: Asking,
    last: Seen,
    when: Option<Instant>,
}

/// The workers of the world, or why they cannot be asked.
type Seen = Result<Arc<[Status]>, String>;

impl Looking {
    fn look(&mut self) -> Seen {
        if self.when.is_none_or(|when| when.elapsed() >= FRESH) {
            let worlds = self.asking.all(self.which).map_err(|error| error.to_string());
            self.last = worlds.map(|worlds| largest(worlds).into());
            self.when = Some(Instant::now());
        }
        self.last.clone()
    }
}

/// A program may have several worlds at once; the largest is what it is about, however many of its workers answer.
fn largest(worlds: Vec<Vec<Status>>) -> Vec<Status> {
    let size = |workers: &Vec<Status>| workers.first().map(|first| (first.size, Reverse(first.world)));
    worlds.into_iter().max_by_key(size).unwrap_or_default()
}

/// What can be seen now; nothing yet, or no more, when no worker answers.
async fn look(shared: &Shared) -> Seen {
    let mut looking = shared.clone().lock_owned().await;
    // Asking takes a while where a worker does not answer. The page and all others are served meanwhile.
    let seen = tokio::task::spawn_blocking(move || looking.look()).await;
    seen.unwrap_or_else(|error| Err(error.to_string()))
}

/// Serves the page on a thread of its own, for the world that this process starts, at the first of these addresses that can be
/// listened on; where it is.
///
/// # Errors
/// When none of the addresses can be listened on.
pub(crate) fn serve(addresses: &Addresses) -> Result<SocketAddr, Error> {
    let listener = addresses.listen()?;
    let address = listener.local_addr()?;
    let shared: Shared = Arc::new(Mutex::new(Looking {
        which: Which::of(std::process::id()),
        asking: Asking::default(),
        last: Ok(Arc::default()),
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

async fn status(State(shared): State<Shared>) -> Response {
    match look(&shared).await {
        Ok(workers) => Json(answer::of(&workers)).into_response(),
        Err(error) => unknown(error),
    }
}

async fn numbers(State(shared): State<Shared>) -> Response {
    match look(&shared).await {
        Ok(workers) => {
            let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
            (kind, metrics::text(&workers)).into_response()
        }
        Err(error) => unknown(error),
    }
}

/// That the workers cannot be asked is not that there are none.
fn unknown(error: String) -> Response {
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
    fn the_largest_world_is_shown_whoever_answers() {
        let small = || vec![worker(1, 2), worker(1, 2)];
        let large = || vec![worker(2, 3)];
        assert_eq!(largest(vec![small(), large()]), large());
        assert_eq!(largest(vec![large(), small()]), large());
        let other = || vec![worker(3, 3), worker(3, 3)];
        assert_eq!(largest(vec![other(), large()]), large(), "and it stays the same");
        assert_eq!(largest(Vec::new()), []);
    }
}
