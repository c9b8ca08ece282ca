//! A subscriber that was there before the first worker, and on another thread (S47). In a file of its own, because only the first
//! worker of a process is the first.

use std::sync::mpsc::channel;

use telegrad_trace::{Clock, Recorder};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::layer::SubscriberExt as _;

#[test]
fn a_subscriber_that_another_thread_has_set_before_is_asked() {
    let (told, tell) = (channel(), channel::<()>());
    let thread = std::thread::spawn(move || {
        let subscriber = Dispatch::new(tracing_subscriber::registry().with(LevelFilter::DEBUG));
        dispatcher::with_default(&subscriber, || {
            told.0.send(()).unwrap();
            tell.1.recv().unwrap_err();
        });
    });
    told.1.recv().unwrap();
    let recorder = Recorder::new(0, Clock::default(), 0);
    assert!(recorder.here().is_some());
    assert_eq!(
        LevelFilter::current(),
        LevelFilter::DEBUG,
        "nobody else is asked for more"
    );
    drop(tell.0);
    thread.join().unwrap();
}
