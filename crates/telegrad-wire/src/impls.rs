//! `Wire` for the types of the standard library, topic by topic.

mod collections;
mod network;
mod numbers;
mod pointers;
mod sequences;
mod text;
mod time;
mod tuples;
