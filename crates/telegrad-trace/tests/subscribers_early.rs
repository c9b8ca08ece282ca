//! A subscriber installed before the first worker, on another thread (S47).
//!
//! In a file of its own, because it needs a process without workers.

use std::sync::mpsc::channel;

use telegrad_trace::{Clock, Recorder};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::layer::SubscriberExt as _;

#[test]
fn a_subscriber_of_another_thread_is_asked_for_its_interest() {
    let (ready, done) = (channel(), channel::<()>());
    let thread = std::thread::spawn(move || {
        let subscriber = Dispatch::new(tracing_subscriber::registry().with(LevelFilter::DEBUG));
        dispatcher::with_default(&subscriber, || {
            ready.0.send(()).unwrap();
            done.1.recv().unwrap_err();
        });
    });
    ready.1.recv().unwrap();
    let recorder = Recorder::new(0, Clock::default(), 0);
    assert!(recorder.here().is_some());
    assert_eq!(
        LevelFilter::current(),
        LevelFilter::DEBUG,
        "the second subscriber changes no level"
    );
    drop(done.0);
    thread.join().unwrap();
}
