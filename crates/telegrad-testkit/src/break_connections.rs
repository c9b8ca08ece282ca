//! A network that breaks.

use std::os::fd::BorrowedFd;

use rustix::net::{Shutdown, getpeername, shutdown};

/// Cuts every connection that this process has, underneath whoever uses it; how many.
///
/// # Panics
/// Where the system does not list the descriptors of a process.
pub fn break_connections() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("a list of descriptors");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_broken = |number: &i32| {
        // SAFETY: the descriptor is used for two system calls that fail on what is not a connected
        // socket and leave the rest as it is; should it have been closed meanwhile, they fail too.
        let fd = unsafe { BorrowedFd::borrow_raw(*number) };
        getpeername(fd).is_ok() && shutdown(fd, Shutdown::Both).is_ok()
    };
    numbers.filter(is_broken).count()
}
