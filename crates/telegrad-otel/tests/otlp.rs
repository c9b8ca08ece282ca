//! What a collector receives of calls between processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prost::Message as _;
use telegrad_rpc::{Error, Result, World, remote};
use telegrad_testkit::Cluster;
use telegrad_trace::record_function;
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

#[test]
fn a_collector_sees_one_trace_over_processes() {
    Cluster::processes(3).run(|world| {
        if world.rank() == 0 {
            first(&world);
        }
    });
}

#[test]
fn a_collector_sees_one_trace_over_tcp() {
    Cluster::processes(3).tcp().run(|world| {
        if world.rank() == 0 {
            first(&world);
        }
    });
}

/// Trains, so to speak, and looks at what has become of it.
fn first(world: &World) {
    let collector = Collector::start();
    // A subscriber that comes after the world has begun is in time.
    let address = collector.address.to_string();
    let names: Vec<String> = world
        .get_worker_infos()
        .into_iter()
        .map(|info| info.name)
        .collect();
    export_to(address.clone(), names[0].clone()).unwrap();
    for other in &names[1..] {
        let args = (address.clone(), other.clone());
        world.rpc_sync(other, export_to, args).unwrap();
    }
    {
        let _step = info_span!("train step").entered();
        assert_eq!(world.rpc_sync(1, relay, (false,)).unwrap(), 7);
        world.rpc_sync(1, relay, (true,)).unwrap_err();
    }
    for other in &names[1..] {
        world.rpc_sync(other, flush, ()).unwrap();
    }
    flush().unwrap();
    collector.check(&names);
}

/// Has the next worker do it.
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
        return Err(Error::other("a leaf falls"));
    }
    Ok(7)
}

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Sends the traces of this process there.
#[remote]
fn export_to(collector: String, service: String) -> Result<()> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("http://{collector}/v1/traces"))
        .build()
        .map_err(Error::other)?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service).build())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("test"))
        .with_filter(EnvFilter::new("off,otlp=info,telegrad=debug"));
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
    let provider = PROVIDER.get().ok_or_else(|| Error::other("nothing to flush"))?;
    provider.force_flush().map_err(Error::other)
}

/// Receives traces as a collector does.
struct Collector {
    address: SocketAddr,
    /// By service.
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

    /// Checks that everything has come, once, under what caused it.
    fn check(&self, workers: &[String]) {
        let spans = std::mem::take(&mut *self.spans.lock().unwrap());
        let find = |worker: usize, name: &str, kind: SpanKind, parent: &[u8]| {
            let found = spans.iter().filter(|(service, span)| {
                *service == workers[worker]
                    && span.name.ends_with(name)
                    && span.kind == kind as i32
                    && span.parent_span_id == parent
            });
            let found: Vec<&Span> = found.map(|(_, span)| span).collect();
            assert!(!found.is_empty(), "no {name} on worker {worker} in {spans:#?}");
            found
        };
        let step = find(0, "train step", SpanKind::Internal, &[])[0];
        let calls = find(0, "relay", SpanKind::Client, &step.span_id);
        assert_eq!(calls.len(), 2);
        let mut seen = vec![step];
        for call in calls {
            let relay = find(1, "relay", SpanKind::Server, &call.span_id);
            let nested = find(1, "leaf", SpanKind::Client, &relay[0].span_id);
            let leaf = find(2, "leaf", SpanKind::Server, &nested[0].span_id);
            let scope = find(2, "in the leaf", SpanKind::Internal, &leaf[0].span_id);
            let inside = find(2, "inside", SpanKind::Internal, &scope[0].span_id);
            for each in [&relay, &nested, &leaf, &scope, &inside] {
                assert_eq!(each.len(), 1, "{each:#?}");
            }
            let (relay, nested, leaf) = (relay[0], nested[0], leaf[0]);
            let codes = [call, relay, nested, leaf].map(code);
            if codes[0] == StatusCode::Unset {
                assert_eq!(codes, [StatusCode::Unset; 4]);
            } else {
                assert_eq!(codes, [StatusCode::Error; 4]);
                let why = &leaf.status.as_ref().unwrap().message;
                assert!(why.contains("a leaf falls"), "{why}");
            }
            let about = attributes(call);
            assert_eq!(about["rpc.system"], "telegrad");
            assert_eq!(about["verb"], "rpc_sync");
            assert_eq!((&about["from"], &about["to"]), (&workers[0], &workers[1]));
            assert!(about["sent_bytes"].parse::<u64>().unwrap() > 0);
            seen.extend([call, relay, nested, leaf, scope[0], inside[0]]);
        }
        let failed = seen.iter().filter(|span| code(span) == StatusCode::Error);
        assert_eq!(
            failed.count(),
            4,
            "one of the two calls has failed, on its whole way"
        );
        for span in &seen {
            assert_eq!(span.trace_id, step.trace_id, "{span:#?}");
            assert!(0 < span.start_time_unix_nano && span.start_time_unix_nano <= span.end_time_unix_nano);
        }
        let of_trace = spans.iter().filter(|(_, span)| span.trace_id == step.trace_id);
        assert_eq!(
            of_trace.count(),
            seen.len(),
            "nothing else is part of it: {spans:#?}"
        );
    }
}

fn code(span: &Span) -> StatusCode {
    span.status
        .as_ref()
        .map_or(StatusCode::Unset, |status| status.code())
}

fn attributes(span: &Span) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let attributes = span.attributes.iter().filter_map(|attribute| {
        let value = attribute.value.as_ref()?.value.as_ref()?;
        Some((attribute.key.clone(), text(value)))
    });
    attributes.collect()
}

/// The spans of a request, each with the name of its service.
fn read(body: Bytes) -> Vec<(String, Span)> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut spans = Vec::new();
    for of_service in request.resource_spans {
        let resource = of_service.resource.unwrap_or_default();
        let name = resource
            .attributes
            .iter()
            .find(|attribute| attribute.key == "service.name");
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
