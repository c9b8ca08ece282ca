//! `telegrad run` from the outside: the built command, with shells as workers.
//!
//! Tests wait for lines and for the ends of processes, never for time to pass; every wait is bounded.

mod arguments;
mod failure;
mod keep_going;
mod launcher;
mod output;
mod signals;
mod world;
