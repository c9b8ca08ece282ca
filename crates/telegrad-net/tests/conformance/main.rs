//! What every link must do: one suite, run over each of them.
//!
//! Each case is a function of the kind of link and appears once per kind, `frames::order::unix` for
//! one. Cases about sockets themselves leave out the link in memory. Every test has a time limit.

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
mod nonsense;
mod handshake;
mod descriptors;
mod shared;
mod streamed;
mod namespaces;

/// So that lent memory becomes vectors.
#[global_allocator]
static ALLOC: telegrad_net::TensorAlloc = telegrad_net::TensorAlloc::new();
