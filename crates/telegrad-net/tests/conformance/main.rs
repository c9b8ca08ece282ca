//! The conformance suite, run over each kind of link.
//!
//! Each case is a function of the kind of link and appears once per kind, for instance `frames::order::unix`. Cases about
//! sockets leave out the link in memory. Every test has a time limit.

mod harness;
mod raw;
mod relay;

mod frames;
mod both_ways;
mod pressure;
mod lanes;
mod chunks;
mod more_lanes;
mod waiting;
mod closing;
mod goodbyes;
mod half_open;
mod violations;
mod handshake;
mod descriptors;
mod shared;
mod streamed;
mod namespaces;

/// Lets lent memory become vectors.
#[global_allocator]
static ALLOC: telegrad_net::TensorAlloc = telegrad_net::TensorAlloc::new();
