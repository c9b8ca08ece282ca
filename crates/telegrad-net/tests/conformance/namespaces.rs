//! Two ends in network namespaces of their own, with a network between them that delays and loses packets.
//!
//! Needs root, `ip`, and either `tc` with netem in the kernel or `/dev/net/tun`, with which the test itself is the
//! network. Without them the test prints the missing part and passes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_net::{Address, Flush, Link, LinkOptions, Outgoing};
use telegrad_wire::{DType, FrameKind};

use crate::harness::{
    Answer, Inbox, Kind, LIMIT, TestWorker, WorkerThreads, argument, command_alone, frame, limited, tensor,
    tensors,
};
use crate::relay::Relay;

/// Delay of one direction.
const DELAY: Duration = Duration::from_millis(5);

/// One packet in so many is lost.
const LOSS: u32 = 100;

#[test]
fn one_lane_over_a_slow_network_that_loses() {
    over_a_bad_network(1);
}

#[test]
fn four_lanes_over_a_slow_network_that_loses() {
    over_a_bad_network(4);
}

fn over_a_bad_network(lanes: usize) {
    // Made outside of the time limit, so that it is removed when the limit is exceeded.
    let mut network = match Network::new(lanes) {
        Ok(network) => network,
        Err(why) => return say(&format!("skipped, because {why}")),
    };
    let mut host = network.run(
        0,
        "namespaces::host",
        &format!("{}:0 {lanes}", network.address(0)),
    );
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let address = lines
        .find_map(|line| line.unwrap().strip_prefix("listens at ").map(str::to_owned))
        .expect("the host does not listen");
    let dialer = network.run(1, "namespaces::dialer", &format!("{address} {lanes}"));
    network.children.push(host);
    let start = Instant::now();
    let output = limited(move || dialer.wait_with_output().unwrap());
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    say(&format!("{lanes} lanes, {}: {:?}", network.how, start.elapsed()));
}

fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "namespaces: {what}");
}

/// Two namespaces and the network between them, removed on drop.
struct Network {
    names: [String; 2],
    subnet: u8,
    how: &'static str,
    children: Vec<Child>,
    _relay: Option<Relay>,
}

impl Network {
    fn new(number: usize) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it takes root to make network namespaces".into());
        }
        sweep();
        let names = ["a", "b"].map(|end| format!("telegrad-{}-{number}{end}", std::process::id()));
        let mut network = Self {
            names,
            subnet: number as u8,
            how: "netem",
            children: Vec::new(),
            _relay: None,
        };
        for name in &network.names {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        if let Err(why) = network.connect_with_netem() {
            say(&format!("without netem: {why}"));
            network.how = "packets through this process";
            network.connect_with_relay()?;
        }
        Ok(network)
    }

    fn address(&self, end: usize) -> String {
        format!("10.77.{}.{}", self.subnet, end + 1)
    }

    /// Connects them with a pair of virtual Ethernet devices and the kernel's network emulation.
    fn connect_with_netem(&self) -> Result<(), String> {
        let [a, b] = &self.names;
        ip(&[
            "-n", a, "link", "add", "end", "type", "veth", "peer", "name", "end", "netns", b,
        ])?;
        let (delay, loss) = (format!("{}ms", DELAY.as_millis()), format!("{}%", 100 / LOSS));
        for (end, name) in self.names.iter().enumerate() {
            let netem = ["netem", "delay", &delay, "loss", &loss, "limit", "10000"];
            let qdisc = [&["-n", name, "qdisc", "add", "dev", "end", "root"][..], &netem].concat();
            if let Err(why) = run("tc", &qdisc) {
                ip(&["-n", a, "link", "del", "end"])?;
                return Err(why);
            }
            self.bring_up(end, "end")?;
        }
        Ok(())
    }

    /// Connects them with tunnels into this process, which delays and drops packets.
    fn connect_with_relay(&mut self) -> Result<(), String> {
        let devices =
            ["a", "b"].map(|end| format!("tg{}{end}{}", std::process::id() % 1_000_000, self.subnet));
        self._relay =
            Some(Relay::start(&devices, DELAY, LOSS).map_err(|error| format!("/dev/net/tun: {error}"))?);
        for (end, device) in devices.iter().enumerate() {
            ip(&["link", "set", device, "netns", &self.names[end]])?;
            // As large as packets are on many fast networks: with small ones the test would take minutes.
            ip(&["-n", &self.names[end], "link", "set", device, "mtu", "9000"])?;
            self.bring_up(end, device)?;
        }
        Ok(())
    }

    fn bring_up(&self, end: usize, device: &str) -> Result<(), String> {
        let (name, address) = (&self.names[end], format!("{}/24", self.address(end)));
        ip(&["-n", name, "addr", "add", &address, "dev", device])?;
        ip(&["-n", name, "link", "set", device, "up"])
    }

    /// Runs one of the ignored tests below in a namespace.
    fn run(&self, end: usize, test: &str, argument: &str) -> Child {
        let alone = command_alone(test, argument);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end]]);
        command.arg(alone.get_program()).args(alone.get_args());
        command.envs(alone.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    run("ip", args)
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .map_err(|error| format!("`{program}`: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    output
        .status
        .success()
        .then_some(())
        .ok_or_else(|| format!("`{program} {}`: {}", args.join(" "), text.trim()))
}

/// Removes namespaces that killed tests left behind.
fn sweep() {
    let listed = Command::new("ip").args(["netns", "list"]).output();
    let names = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    for line in names.unwrap_or_default().lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let process = name
            .strip_prefix("telegrad-")
            .and_then(|rest| rest.split('-').next());
        if process.is_some_and(|id| !std::path::Path::new(&format!("/proc/{id}")).exists()) {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// The argument of both ends: an address and the number of lanes.
fn argument_address() -> Option<(Address, Kind)> {
    let argument = argument()?;
    let (address, lanes) = argument.split_once(' ')?;
    Some((
        Address::Tcp(address.parse().ok()?),
        Kind::Tcp(lanes.parse().ok()?),
    ))
}

/// Answers every request with its own content.
fn echoing() -> Arc<Inbox> {
    Inbox::reacting(|link, message| {
        let (link, call) = (link.clone(), message.header.call.0);
        let (body, tensors) = (message.body.to_vec(), message.tensors.clone());
        // On a thread of its own: this one has to continue reading.
        std::thread::spawn(move || {
            let mut reply = frame(FrameKind::Reply, call, &body);
            reply.payload.tensors = tensors.into_iter().map(|tensor| Box::new(tensor) as _).collect();
            link.send(reply, Flush::Now, None).unwrap();
        });
    })
}

#[test]
#[ignore = "run in a namespace"]
fn host() {
    let Some((address, kind)) = argument_address() else {
        return;
    };
    limited(move || {
        let options = kind.options(LinkOptions::default());
        let hosting = TestWorker::start_at(&address, options, echoing(), None);
        let Address::Tcp(address) = hosting.address() else {
            unreachable!("that is where it listens")
        };
        writeln!(std::io::stdout(), "\nlistens at {address}").unwrap();
        let _link = hosting.accepted();
        hosting.inbox().closed();
    });
}

#[test]
#[ignore = "run in a namespace"]
fn dialer() {
    let Some((address, kind)) = argument_address() else {
        return;
    };
    limited(move || {
        let (side, inbox) = (WorkerThreads::new(), Inbox::new());
        let options = kind.options(LinkOptions::default());
        let link = side.dial(&address, inbox.clone(), options).unwrap();
        let start = Instant::now();
        round(&*link, &inbox, frame(FrameKind::Request, 0, b""));
        assert!(
            start.elapsed() >= 2 * DELAY,
            "the network is not as slow as it should be"
        );
        let mut call = 0;
        for size in [1, 1_000, 68_000, 100_000, 1 << 20, (4 << 20) + 1, 16 << 20] {
            call += 1;
            let content = tensor(DType::U8, &[size], size);
            let answer = round(
                &*link,
                &inbox,
                tensors(FrameKind::Request, call, std::slice::from_ref(&content)),
            );
            assert!(answer.tensors == [content], "{size} bytes");
        }
        // Several at once, with small ones among them.
        std::thread::scope(|scope| {
            for thread in 1..4 {
                let (link, inbox) = (&link, &inbox);
                scope.spawn(move || {
                    for i in 0..4 {
                        let content = tensor(DType::F32, &[100_000 * thread], i);
                        let number = (thread << 16 | i) as u64;
                        let request = tensors(FrameKind::Request, number, std::slice::from_ref(&content));
                        assert!(
                            round(&**link, inbox, request).tensors == [content],
                            "{thread}/{i}"
                        );
                    }
                });
            }
            for i in 0..50 {
                let request = frame(FrameKind::Request, 1 << 32 | i, &i.to_le_bytes());
                assert_eq!(round(&*link, &inbox, request).body, i.to_le_bytes());
            }
        });
        assert_eq!(inbox.closings(), 0);
        link.close("done");
    });
}

fn round(link: &dyn Link, inbox: &Inbox, request: Outgoing) -> crate::harness::Message {
    let call = request.header.call.0;
    link.send(request, Flush::Now, None).unwrap();
    link.wait(&Answer(inbox, call), Some(Instant::now() + LIMIT));
    inbox.take_call(call)
}
