//! The reading end of a worker's standard output or standard error.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lines::Lines;

/// Bytes in one read: the usual size of a pipe.
const READ: usize = 64 * 1024;

/// Bytes read from a pipe before it is closed: the largest size of a pipe.
const LAST_READ: usize = 1024 * 1024;

/// The reading end of a worker's stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// `None` after its end.
    pipe: Option<OwnedFd>,
    lines: Lines,
}

impl Stream {
    pub(super) fn new(pipe: Option<OwnedFd>, lines: Lines) -> Self {
        Stream { pipe, lines }
    }

    /// The descriptor to poll, until the end of the stream.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads once; at the end of the stream, also completes the last line.
    pub(super) fn read(&mut self, text: &mut Vec<u8>) -> usize {
        let Some(pipe) = &self.pipe else { return 0 };
        let mut chunk = [0; READ];
        let read = loop {
            match rustix::io::read(pipe, &mut chunk) {
                Err(rustix::io::Errno::INTR) => {}
                // A pipe has no other errors to read past.
                other => break other.unwrap_or(0),
            }
        };
        if read == 0 {
            self.pipe = None;
            self.lines.finish(text);
        }
        self.lines.push(&chunk[..read], text);
        read
    }

    /// Reads the available bytes without blocking, and closes the pipe.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut total = 0;
        while let Some(pipe) = &self.pipe {
            let mut ready = [PollFd::new(pipe, PollFlags::IN)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            if total >= LAST_READ || !matches!(poll(&mut ready, Some(&now)), Ok(1)) {
                break;
            }
            total += self.read(&mut text);
        }
        self.pipe = None;
        self.lines.finish(&mut text);
        text
    }
}
