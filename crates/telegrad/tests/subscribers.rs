//! Spans of a training step for subscribers of `tracing`, each under its cause.

use std::sync::{Arc, LazyLock, Mutex};

use telegrad::prelude::*;
use telegrad::trace::TARGET;
use telegrad_testkit::Cluster;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context as Around, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// The names of spans, each with its parent's name.
type Spans = Vec<(String, Option<String>)>;

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Spans>>);

#[derive(Clone)]
struct Name(String);

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "otel.name" {
            self.0 = value.to_owned();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, around: Around<'_, S>) {
        let mut name = Name(attributes.metadata().name().to_owned());
        attributes.record(&mut name);
        let span = around.span(id).unwrap();
        let parent = span.parent();
        let parent = parent.and_then(|parent| Some(parent.extensions().get::<Name>()?.0.clone()));
        if attributes.metadata().target() == TARGET {
            self.0.lock().unwrap().push((name.0.clone(), parent));
        }
        span.extensions_mut().insert(name);
    }
}

/// The spans of this process.
static SEEN: LazyLock<Seen> = LazyLock::new(Seen::default);

#[remote]
fn watch() -> Result<()> {
    let subscriber = Registry::default().with(SEEN.clone());
    tracing::subscriber::set_global_default(subscriber).map_err(Error::other)
}

#[remote]
fn seen() -> Spans {
    SEEN.0.lock().unwrap().clone()
}

#[test]
fn all_of_a_training_step_is_seen_under_what_caused_it() {
    Cluster::processes(2)
        .options(|options| options.extension = Some(telegrad::extension::layer::<telegrad::candle::Candle>))
        .run(|world| {
            if world.rank() == 0 {
                watch().unwrap();
                world.rpc_sync(1, watch, ()).unwrap();
                tracing::info_span!("step").in_scope(|| train(&world).unwrap());
                let there = world.rpc_sync(1, seen, ()).unwrap();
                check(&seen(), &there);
            }
        });
}

fn train(world: &World) -> Result<()> {
    let x = Param::new(&Tensor::ones(3, DType::F32, &Device::Cpu)?)?;
    world.context(|context| {
        let loss = world.rpc_sync(1, double, (x.tensor(),))?.sum_all()?;
        context.backward(std::slice::from_ref(&loss))
    })
}

#[remote]
fn double(x: Tensor) -> Result<Tensor> {
    let two = x.ones_like()?.affine(2.0, 0.0)?;
    telegrad::ops::mul(x, two)
}

/// Checks the spans here and on the other worker.
#[track_caller]
fn check(here: &Spans, there: &Spans) {
    let around = |seen: &Spans, name: &str| -> Vec<String> {
        let found = seen.iter().filter(|(other, _)| other == name);
        found
            .map(|(_, parent)| parent.clone().unwrap_or_default())
            .collect()
    };
    let (double, gradients) = ("subscribers::double", "telegrad::autograd::gradients");
    for (name, is_under) in [
        (double, "step"),
        ("autograd::send", "step"),
        ("backward", "step"),
        (gradients, "backward"),
    ] {
        assert_eq!(around(here, name), [is_under], "{name} in {here:#?}");
    }
    for (name, is_under) in [
        // The cause is on another worker and was not propagated.
        (double, ""),
        ("autograd::receive", double),
        ("mul", double),
        ("autograd::send", double),
        (gradients, ""),
        ("autograd::receive gradient", gradients),
        ("mul backward", "autograd::gradients"),
        ("autograd::gradients", gradients),
        ("autograd::send gradient", gradients),
    ] {
        assert_eq!(around(there, name), [is_under], "{name} in {there:#?}");
    }
    for (name, parent) in here.iter().filter(|(name, _)| name.starts_with("autograd::")) {
        assert!(parent.is_some(), "{name} is under nothing in {here:#?}");
    }
}
