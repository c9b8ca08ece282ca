//! Traces that a collector of OpenTelemetry receives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prost::Message as _;
use telegrad_rpc::{Error, RRef, Result, World, remote};
use telegrad_testkit::{Cluster, on_cluster};
use telegrad_trace::record_function;
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

on_cluster! { unix: Cluster::processes(3) => a_collector_receives_one_trace_across_processes }
on_cluster! { tcp: Cluster::processes(3).tcp() => a_collector_receives_one_trace_across_processes }

fn a_collector_receives_one_trace_across_processes(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() == 0 {
            let collector = export(&world, || {
                assert_eq!(world.rpc_sync(1, relay, (false,)).unwrap(), 7);
                world.rpc_sync(1, relay, (true,)).unwrap_err();
                deferred_calls(&world).unwrap();
            });
            check(&collector.traces());
        }
    });
}

/// Calls `leaf` on the next worker.
#[remote]
fn relay(fails: bool) -> Result<u32> {
    let world = World::current()?;
    world.rpc_sync(world.rank() + 1, leaf, (fails,))
}

#[remote]
fn leaf(fails: bool) -> Result<u32> {
    record_function!("in the leaf");
    let _inside = info_span!("inside").entered();
    if fails {
        return Err(Error::other("leaf failed on purpose"));
    }
    Ok(7)
}

/// Calls from callbacks, methods that wait for their object, and async functions.
fn deferred_calls(world: &World) -> Result<()> {
    let called = world.clone();
    let then = world.rpc_async(1, relay, (false,))?.then(move |value| {
        value?;
        called.rpc_sync(2, leaf, (false,))
    });
    then.wait()?;
    // The method arrives before its object exists, and `ask` before its reference is confirmed.
    let slow: RRef<Slow> = world.remote(1, Slow::new, ())?;
    world.rpc_sync(2, ask, (slow.clone(),))?;
    slow.rpc_sync(Slow::relay, ())?;
    Ok(())
}

struct Slow;

#[remote]
impl Slow {
    fn new() -> Result<Self> {
        std::thread::sleep(Duration::from_millis(50));
        Ok(Self)
    }

    fn relay(&self) -> Result<u32> {
        relay(false)
    }
}

#[remote]
async fn ask(_slow: RRef<Slow>) -> Result<u32> {
    World::current()?.rpc_async(2, leaf, (false,))?.await
}

/// A span and its children.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tree {
    worker: String,
    name: String,
    kind: &'static str,
    failed: bool,
    children: Vec<Tree>,
}

fn tree(worker: u32, name: &str, kind: &'static str, children: Vec<Tree>) -> Tree {
    Tree {
        worker: format!("w{worker}"),
        name: name.into(),
        kind,
        failed: false,
        children,
    }
}

fn failed(tree: Tree) -> Tree {
    Tree { failed: true, ..tree }
}

/// A call and its execution.
fn call(from: u32, to: u32, name: &str, children: Vec<Tree>) -> Tree {
    tree(from, name, "client", vec![tree(to, name, "server", children)])
}

fn in_leaf() -> Vec<Tree> {
    vec![tree(
        2,
        "in the leaf",
        "internal",
        vec![tree(2, "inside", "internal", vec![])],
    )]
}

/// Checks that each span was received once, under its cause.
fn check(traces: &[Tree]) {
    let relayed = || call(0, 1, "relay", vec![call(1, 2, "leaf", in_leaf())]);
    let failing = {
        let leaf = failed(tree(2, "leaf", "server", in_leaf()));
        let nested = failed(tree(1, "leaf", "client", vec![leaf]));
        let execution = failed(tree(1, "relay", "server", vec![nested]));
        failed(tree(0, "relay", "client", vec![execution]))
    };
    let then = tree(0, "then", "internal", vec![call(0, 2, "leaf", in_leaf())]);
    let made = call(0, 1, "new", vec![]);
    let asked = call(0, 2, "ask", vec![call(2, 2, "leaf", in_leaf())]);
    // The last one is of the method, which has the name of the function.
    let mut children = vec![relayed(), failing, relayed(), then, made, asked, relayed()];
    children.sort();
    let step = tree(0, "train step", "internal", children);
    let others: Vec<_> = traces.iter().filter(|trace| **trace != step).collect();
    let is_ours = |tree: &&Tree| !["flush", "export_to"].contains(&&*tree.name);
    assert!(
        traces.contains(&step) && !others.iter().any(is_ours),
        "{step:#?}\nand spans of the test itself are not all that was received:\n{traces:#?}"
    );
}

/// Runs `f` in a span, with the traces of all workers exported to a collector.
fn export(world: &World, f: impl FnOnce()) -> Collector {
    let collector = Collector::start();
    let address = collector.address.to_string();
    let infos = world.get_worker_infos();
    let names: Vec<String> = infos.into_iter().map(|info| info.name).collect();
    // The subscriber is installed after `init`.
    export_to(address.clone(), names[0].clone()).unwrap();
    for other in &names[1..] {
        let args = (address.clone(), other.clone());
        world.rpc_sync(other, export_to, args).unwrap();
    }
    info_span!("train step").in_scope(f);
    for other in &names[1..] {
        world.rpc_sync(other, flush, ()).unwrap();
    }
    flush().unwrap();
    collector
}

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Exports the traces of this process to `collector`.
#[remote]
fn export_to(collector: String, service: String) -> Result<()> {
    // A proxy in the environment does not apply to loopback.
    let client = reqwest::blocking::Client::builder().no_proxy().build();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client.map_err(Error::other)?)
        .with_endpoint(format!("http://{collector}/v1/traces"))
        .build()
        .map_err(Error::other)?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service).build())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("test"))
        .with_filter(EnvFilter::new("off,otlp=info,telegrad::trace=debug"));
    PROVIDER.get_or_init(|| provider);
    tracing_subscriber::registry()
        .with(layer)
        .try_init()
        .map_err(Error::other)?;
    telegrad_otel::propagate();
    Ok(())
}

#[remote]
fn flush() -> Result<()> {
    let provider = PROVIDER
        .get()
        .ok_or_else(|| Error::other("`export_to` was not called"))?;
    provider.force_flush().map_err(Error::other)
}

/// A collector of OpenTelemetry.
struct Collector {
    address: SocketAddr,
    /// The received spans, each with the name of its service.
    spans: Arc<Mutex<Vec<(String, Span)>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let spans = Arc::<Mutex<Vec<_>>>::default();
        let received = spans.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let take = move |body: Bytes| async move { received.lock().unwrap().extend(read(body)) };
                let app = Router::new().route("/v1/traces", post(take));
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, app).await.unwrap();
            });
        });
        Self { address, spans }
    }

    /// Returns the received traces, after a check of each span.
    fn traces(&self) -> Vec<Tree> {
        let spans = self.spans.lock().unwrap();
        spans.iter().for_each(|(_, span)| check_span(span));
        children_of(&spans, &[])
    }
}

/// Returns the children of a span as trees.
fn children_of(spans: &[(String, Span)], parent: &[u8]) -> Vec<Tree> {
    let children = spans.iter().filter(|(_, span)| span.parent_span_id == parent);
    let trees = children.map(|(service, span)| {
        let below = children_of(spans, &span.span_id);
        for (_, child) in spans
            .iter()
            .filter(|(_, child)| child.parent_span_id == span.span_id)
        {
            assert_eq!(child.trace_id, span.trace_id, "{child:#?}");
        }
        Tree {
            worker: service.clone(),
            name: span.name.rsplit("::").next().unwrap_or_default().to_owned(),
            kind: match span.kind() {
                SpanKind::Client => "client",
                SpanKind::Server => "server",
                _ => "internal",
            },
            failed: span
                .status
                .as_ref()
                .is_some_and(|status| status.code() == StatusCode::Error),
            children: below,
        }
    });
    let mut trees: Vec<_> = trees.collect();
    trees.sort();
    trees
}

fn check_span(span: &Span) {
    assert!(0 < span.start_time_unix_nano && span.start_time_unix_nano <= span.end_time_unix_nano);
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let attributes = span.attributes.iter().filter_map(|attribute| {
        let value = attribute.value.as_ref()?.value.as_ref()?;
        Some((attribute.key.as_str(), text(value)))
    });
    let fields: BTreeMap<_, _> = attributes.collect();
    if span.kind() == SpanKind::Client {
        assert_eq!(
            (&*fields["rpc.system"], &fields["rpc.method"]),
            ("telegrad", &span.name)
        );
        assert!(
            ["rpc_sync", "rpc_async", "remote"].contains(&&*fields["verb"]),
            "{fields:?}"
        );
        assert!(
            fields["from"].starts_with('w') && fields["to"].starts_with('w'),
            "{fields:?}"
        );
        assert!(fields["sent_bytes"].parse::<u64>().unwrap() > 0);
    }
    if let Some(status) = span
        .status
        .as_ref()
        .filter(|status| status.code() == StatusCode::Error)
    {
        assert!(
            status.message.contains("leaf failed on purpose"),
            "{}",
            status.message
        );
    }
}

/// Decodes the spans of a request, each with the name of its service.
fn read(body: Bytes) -> Vec<(String, Span)> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut spans = Vec::new();
    for of_service in request.resource_spans {
        let resource = of_service.resource.unwrap_or_default();
        let mut attributes = resource.attributes.iter();
        let name = attributes.find(|attribute| attribute.key == "service.name");
        let name = name.and_then(|attribute| match attribute.value.as_ref()?.value.as_ref()? {
            Value::StringValue(name) => Some(name.clone()),
            _ => None,
        });
        let name = name.expect("services have names");
        let inside = of_service.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(inside.map(|span| (name.clone(), span)));
    }
    spans
}
