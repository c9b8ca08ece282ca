//! Any bytes into everything that reads bytes. Run with `cargo +nightly fuzz run any_bytes`.
//!
//! The target is the one that the test suite runs on bounded input.
#![no_main]

#[path = "../../crates/telegrad-wire/tests/hostile/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|data: &[u8]| any_bytes::into_everything(data));
