//! One client on several servers.

use std::time::Duration;

use serde_json::json;
use telegrad::prelude::*;
use telegrad::{RpcFuture, ops};
use telegrad_cli::Workers;

use crate::Error;
use crate::calls::{nop, times};
use crate::measurement::Measurements;
use crate::payload::MB;

/// Measures rounds of one call to each of the other workers.
pub(crate) fn rounds(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    let world = &workers.world;
    let names = workers.others();
    for (size, elements, count) in [
        ("tiny", 2, if quick { 100 } else { 1000 }),
        ("1MB", MB / 4, if quick { 20 } else { 100 }),
    ] {
        let t = Tensor::ones(elements, DType::F32, &Device::Cpu)?;
        let mut add = |call: &str, times: Vec<Duration>| {
            let params = json!({ "workers": names.len(), "call": call, "size": size });
            measurements.frequency("fanout", params, "round", times);
        };
        let builtin = times(count, || {
            call_all(&names, |name| {
                world.rpc_async(name, ops::add, (t.clone(), t.clone()))
            })
        })?;
        add("builtin_add", builtin);
        if size == "tiny" {
            let user = times(count, || {
                call_all(&names, |name| world.rpc_async(name, nop, (1,)))
            })?;
            add("user_function", user);
        }
    }
    Ok(())
}

/// Issues one call per worker, then waits for all replies.
fn call_all<T: Wire>(names: &[String], issue: impl Fn(&str) -> Result<RpcFuture<T>>) -> Result<(), Error> {
    let calls: Result<Vec<_>> = names.iter().map(|name| issue(name)).collect();
    for call in calls? {
        call.wait()?;
    }
    Ok(())
}
