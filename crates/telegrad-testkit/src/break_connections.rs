//! Connection failures.

use std::os::fd::BorrowedFd;

use rustix::net::{Shutdown, getpeername, shutdown};

/// Shuts down every socket connection of this process; returns how many.
///
/// # Panics
/// When the system does not list the descriptors of a process.
pub fn break_connections() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("a list of descriptors");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let shut_down = |number: &i32| {
        // SAFETY: the descriptor is used for two system calls, which fail without effect on anything but a connected socket,
        // and on a descriptor that was closed meanwhile.
        let fd = unsafe { BorrowedFd::borrow_raw(*number) };
        getpeername(fd).is_ok() && shutdown(fd, Shutdown::Both).is_ok()
    };
    numbers.filter(shut_down).count()
}
