//! A network made of two tunnel devices and this process between them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Most queued packets in one direction. Further ones are lost, as in any router.
const QUEUE: usize = 2000;

/// Asks a descriptor of `/dev/net/tun` to be the device of this name.
const TUNSETIFF: rustix::ioctl::Opcode = 0x4004_54ca;

/// Bare IP packets, nothing in front of them.
const TUN_WITHOUT_HEADER: i16 = 0x0001 | 0x1000;

#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// Forwards packets until it is dropped.
pub(crate) struct Relay {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Makes two devices. Packets sent to one leave the other after `delay`; one in `loss` is dropped.
    pub(crate) fn start(names: &[String; 2], delay: Duration, loss: u32) -> io::Result<Self> {
        let (a, b) = (open(&names[0])?, open(&names[1])?);
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (from, to) in [(a.try_clone()?, b.try_clone()?), (b, a)] {
            let (sender, queue) = sync_channel(QUEUE);
            let stop = over.clone();
            threads.push(std::thread::spawn(move || take(from, &sender, &stop, loss)));
            threads.push(std::thread::spawn(move || give(to, &queue, delay)));
        }
        Ok(Self { over, threads })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn open(name: &str) -> io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: TUN_WITHOUT_HEADER,
        rest: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: this request reads a `struct ifreq`, which `InterfaceRequest` is laid out as, and keeps no reference.
    unsafe {
        let request = rustix::ioctl::Setter::<TUNSETIFF, InterfaceRequest>::new(request);
        rustix::ioctl::ioctl(&device, request)?;
    }
    Ok(device)
}

fn take(mut device: File, queue: &SyncSender<(Instant, Vec<u8>)>, over: &AtomicBool, loss: u32) {
    let mut packet = vec![0; 1 << 16];
    let mut random = 1_u32;
    let step = Timespec::try_from(Duration::from_millis(50)).unwrap();
    while !over.load(SeqCst) {
        let is_ready = poll(&mut [PollFd::new(&device.as_fd(), PollFlags::IN)], Some(&step));
        // The device may have been removed with its namespace.
        let Ok(1) = is_ready else { continue };
        let Ok(len) = device.read(&mut packet) else {
            continue;
        };
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        if !random.is_multiple_of(loss) {
            let _ = queue.try_send((Instant::now(), packet[..len].to_vec()));
        }
    }
}

fn give(mut device: File, queue: &Receiver<(Instant, Vec<u8>)>, delay: Duration) {
    while let Ok((since, packet)) = queue.recv() {
        std::thread::sleep((since + delay).saturating_duration_since(Instant::now()));
        let _ = device.write(&packet);
    }
}
