//! Signals that end a command.

use std::fs;
use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::low_level::siginfo::Cause;

/// Catches the signals that end a command, with their senders. Leaves out an ignored `SIGHUP`: a handler would undo the effect of
/// `nohup`.
pub(super) fn ending() -> io::Result<SignalsInfo<WithOrigin>> {
    let signals: &[i32] = if is_ignored(SIGHUP) {
        &[SIGINT, SIGTERM]
    } else {
        &[SIGINT, SIGTERM, SIGHUP]
    };
    SignalsInfo::new(signals)
}

/// Whether this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    // Without /proc, assumes the usual case.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// Whether the signal comes from the terminal, which sends it to the whole process group. Other senders mostly address one process.
pub(super) fn is_from_terminal(origin: &Origin) -> bool {
    matches!(origin.cause, Cause::Kernel)
}
