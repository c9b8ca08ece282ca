//! Telegrad runs functions, keeps objects and sends gradients across processes.

pub mod launch;
