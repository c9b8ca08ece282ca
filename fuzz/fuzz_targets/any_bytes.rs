//! Decodes arbitrary bytes as every type. Run with `cargo +nightly fuzz run any_bytes`.
//!
//! The tests of telegrad-wire run the same function on chosen input.
#![no_main]

#[path = "../../crates/telegrad-wire/tests/hostile/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|data: &[u8]| any_bytes::into_everything(data));
