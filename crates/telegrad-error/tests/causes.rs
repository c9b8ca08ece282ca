//! Errors that hold another error: its text is part of theirs once, and the error behind stays reachable.
#![cfg(feature = "candle")]

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use telegrad_error::{
    AutogradError, Error, Mismatch, NnError, OptimError, ReferenceInfo, ReferenceState, RemoteError,
    RemoteErrorKind, RendezvousError, UrlError, WorkerInfo,
};
use telegrad_wire::WireError;

/// A user's error with a source that it does not print.
#[derive(Debug, thiserror::Error)]
#[error("the batch is empty")]
struct NoBatch {
    source: io::Error,
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the disk said no")
}

fn remote() -> RemoteError {
    RemoteError::new(RemoteErrorKind::Failed, "the inner text", "w2", "f")
}

/// Every variant that holds another error, and the text of that error.
fn holders() -> Vec<(Error, String)> {
    let (function, worker) = ("f".to_owned(), "w1".to_owned());
    let wire = || Box::new(WireError::LeftOver { count: 3 });
    let wire_text = wire().to_string();
    let mismatch = Mismatch::Missing {
        function: function.clone(),
        worker: worker.clone(),
    };
    let url = RendezvousError::Url {
        url: "x".into(),
        problem: UrlError::Scheme,
    };
    let stage = |source: Error| NnError::Stage {
        index: 1,
        stage: "Linear".into(),
        source: Box::new(source),
    };
    let load = NnError::Load {
        path: "p".into(),
        source: Box::new(stage(remote().into()).into()),
    };
    let file = OptimError::File {
        action: "read",
        path: "p".into(),
        source: refused(),
    };
    let owners = || vec![("w1".to_owned(), Error::from(remote()))];
    let candle = candle_core::Error::Msg("candle said no".into());
    vec![
        (Error::Mismatch(Box::new(mismatch.clone())), mismatch.to_string()),
        (remote().into(), remote().to_string()),
        (
            Error::Send {
                function: function.clone(),
                worker: worker.clone(),
                source: wire(),
            },
            wire_text.clone(),
        ),
        (
            Error::Receive {
                function,
                worker,
                source: wire(),
            },
            wire_text,
        ),
        (url.into(), UrlError::Scheme.to_string()),
        (AutogradError::NoRoots.into(), AutogradError::NoRoots.to_string()),
        (stage(remote().into()).into(), remote().to_string()),
        (load.into(), remote().to_string()),
        (file.into(), refused().to_string()),
        (OptimError::Owners(owners()).into(), remote().to_string()),
        (OptimError::Norm(owners()).into(), remote().to_string()),
        (candle.into(), "candle said no".into()),
        (refused().into(), refused().to_string()),
        (Error::Shared(Arc::new(remote().into())), remote().to_string()),
        (
            Error::other(NoBatch { source: refused() }),
            "the batch is empty".into(),
        ),
    ]
}

#[test]
fn a_text_contains_the_cause_once_and_no_source_repeats_it() {
    for (error, cause) in holders() {
        let text = error.to_string();
        assert_eq!(text.matches(&cause).count(), 1, "{text}");
        assert_eq!(format!("{error:?}"), text);
        let mut outer: &(dyn std::error::Error + 'static) = &error;
        while let Some(inner) = outer.source() {
            assert!(
                !outer.to_string().contains(&inner.to_string()),
                "{outer}: {inner}"
            );
            outer = inner;
        }
    }
}

#[test]
fn the_source_of_an_error_of_the_user_is_returned() {
    let error = Error::other(NoBatch { source: refused() });
    assert_eq!(error.source().unwrap().to_string(), "the disk said no");
}

#[test]
fn each_crate_finds_its_error() {
    let error = Error::from(AutogradError::NoContext);
    assert_eq!(error.autograd(), Some(&AutogradError::NoContext));
    assert!(error.optim().is_none() && error.nn().is_none() && error.remote().is_none());
    let error = Error::from(OptimError::NoParameters);
    assert!(matches!(error.optim(), Some(OptimError::NoParameters)));
    assert!(error.autograd().is_none());
    let error = Error::from(NnError::LostGradient { layer: "x".into() });
    assert!(matches!(error.nn(), Some(NnError::LostGradient { .. })));
    assert!(error.autograd().is_none());
    assert_eq!(Error::from(remote()).remote(), Some(&remote()));
}

#[test]
fn a_shared_error_is_seen_through() {
    let shared = |error: Error| Error::Shared(Arc::new(Error::Shared(Arc::new(error))));
    assert_eq!(shared(remote().into()).remote(), Some(&remote()));
    assert!(shared(AutogradError::NoRoots.into()).autograd().is_some());
    assert!(matches!(shared(Error::ShutDown).original(), Error::ShutDown));
}

#[test]
fn an_error_that_leaves_a_worker_keeps_the_failure_of_a_call_behind_it() {
    let seen = |error: Error| RemoteError::from_user(&error.into(), "w1", "g");
    let own = seen(AutogradError::NoRoots.into());
    assert_eq!(own.kind, RemoteErrorKind::Failed);
    assert_eq!(own.message, AutogradError::NoRoots.to_string());
    assert_eq!(own.worker(), "w1");
    let panicked = RemoteError::new(RemoteErrorKind::Panicked, "no", "w2", "f");
    for error in [
        Error::from(panicked.clone()),
        Error::Shared(Arc::new(panicked.clone().into())),
    ] {
        let passed_on = seen(error);
        assert_eq!(passed_on.kind, RemoteErrorKind::Panicked);
        assert_eq!(passed_on.message, "no");
        assert_eq!((passed_on.worker(), passed_on.function()), ("w2", "f"));
        assert_eq!(passed_on.chain.len(), 2);
    }
}

#[test]
fn errors_pass_through_a_model_that_returns_those_of_candle() {
    let through: candle_core::Error = Error::from(candle_core::Error::Msg("no".into())).into();
    assert!(matches!(through, candle_core::Error::Msg(text) if text == "no"));
    let wrapped: candle_core::Error = Error::from(AutogradError::NoRoots).into();
    assert!(wrapped.to_string().contains(&AutogradError::NoRoots.to_string()));
}

#[test]
fn long_lists_are_cut() {
    let owner = WorkerInfo {
        name: "w1".into(),
        rank: 1,
    };
    let leak = ReferenceInfo::new("i64", owner.clone(), ReferenceState::Ready);
    let text = Error::Leaked(vec![leak.clone(); 10]).to_string();
    assert!(
        text.ends_with("`i64` on `w1` (ready), without holders and 2 more"),
        "{text}"
    );
    let held = leak.holders(vec![(owner, 2)]);
    assert_eq!(held.to_string(), "`i64` on `w1` (ready), held by `w1` 2 times");
}
