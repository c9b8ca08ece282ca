//! Signals that end a command.

use std::fs;
use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::low_level::siginfo::Cause;

/// The signals that arrive from now on, with who has sent them. `SIGHUP` is among them unless it is ignored, because this was started
/// with `nohup` to outlive its terminal, which a handler would undo.
pub(super) fn ending() -> io::Result<SignalsInfo<WithOrigin>> {
    let some: &[i32] = if is_ignored(SIGHUP) {
        &[SIGINT, SIGTERM]
    } else {
        &[SIGINT, SIGTERM, SIGHUP]
    };
    SignalsInfo::new(some)
}

/// Whether a signal does nothing.
fn is_ignored(signal: i32) -> bool {
    // Where that cannot be found out, it is as it mostly is.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// Whether the terminal has sent it, which sends it to all that were started from there. Others mostly mean this one process.
pub(super) fn is_of_terminal(origin: &Origin) -> bool {
    matches!(origin.cause, Cause::Kernel)
}
