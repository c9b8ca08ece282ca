//! A peer made of sockets, on which a test sends any bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use socket2::{Domain, SockAddr, Socket, Type};
use telegrad_net::{Address, Hello, Lane, Link, LinkOptions, MIN_CHUNK, Welcome, preface};
use telegrad_wire::{
    CallId, DType, Decoder, Encoder, FrameHeader, FrameKind, HEADER_LEN, RawTensor, TensorTable, Wire,
};

use crate::harness::{End, Inbox, Kind, LIMIT, TestWorker, WorkerThreads, fresh_address, hello};

/// The two connections of a link, without a link around them.
pub(crate) struct Lanes {
    pub(crate) control: Socket,
    pub(crate) bulk: Socket,
}

/// A real end with a raw peer, and the end's threads.
pub(crate) struct WithRaw<S> {
    pub(crate) end: End,
    pub(crate) peer: Lanes,
    pub(crate) side: S,
}

/// A real end that a raw peer dialled.
pub(crate) fn dialled_by_hand(kind: Kind, options: LinkOptions, inbox: Arc<Inbox>) -> WithRaw<TestWorker> {
    let hosting = TestWorker::start(kind, options, inbox.clone());
    let peer = shake_hands(hosting.address());
    WithRaw {
        end: End {
            link: hosting.accepted(),
            inbox,
        },
        peer,
        side: hosting,
    }
}

/// A real end that dialled a raw peer.
pub(crate) fn answered_by_hand(
    kind: Kind,
    options: LinkOptions,
    inbox: Arc<Inbox>,
) -> WithRaw<WorkerThreads> {
    let (listener, address) = listen(&fresh_address(kind));
    let accepting = std::thread::spawn(move || {
        let mut control = welcome(&listener, Lane::Control);
        let bulk = welcome(&listener, Lane::Bulk);
        if let Kind::Shared | Kind::Streamed = kind {
            // Accepts the offered memory without mapping it: the real end's loans never return.
            control.read_exact(&mut [0]).unwrap();
            control.write_all(&[1]).unwrap();
        }
        Lanes { control, bulk }
    });
    let side = WorkerThreads::new();
    let link: Arc<dyn Link> = side.dial(&address, inbox.clone(), kind.options(options)).unwrap();
    WithRaw {
        end: End { link, inbox },
        peer: accepting.join().unwrap(),
        side,
    }
}

/// Dials both lanes of the listener at `address`.
pub(crate) fn shake_hands(address: &Address) -> Lanes {
    let lane = |lane| {
        let mut socket = connect(address);
        let hello = Hello {
            link: 77,
            ..hello(lane)
        };
        socket.write_all(&preface()).unwrap();
        socket.write_all(&encoded(FrameKind::Hello, &hello)).unwrap();
        let mut greeting = [0; 8];
        socket.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, preface());
        let (header, _) = read_frame(&mut socket);
        assert_eq!(header.kind, FrameKind::Welcome);
        socket
    };
    Lanes {
        control: lane(Lane::Control),
        bulk: lane(Lane::Bulk),
    }
}

pub(crate) fn welcome(listener: &Socket, lane: Lane) -> Socket {
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut greeting = [0; 8];
    socket.read_exact(&mut greeting).unwrap();
    let (header, body) = read_frame(&mut socket);
    assert_eq!(header.kind, FrameKind::Hello);
    assert_eq!(Hello::decode(&mut Decoder::new(&body)).unwrap().lane, lane);
    socket.write_all(&preface()).unwrap();
    socket
        .write_all(&encoded(
            FrameKind::Welcome,
            &Welcome {
                digest: 0,
                functions: None,
            },
        ))
        .unwrap();
    socket
}

pub(crate) fn connect(address: &Address) -> Socket {
    let (domain, address) = resolve(address);
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    socket.connect(&address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// A listening socket that answers only by the test.
pub(crate) fn listen(address: &Address) -> (Socket, Address) {
    let (domain, target) = resolve(address);
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    socket.bind(&target).unwrap();
    socket.listen(1).unwrap();
    let address = match address {
        Address::Tcp(_) => Address::Tcp(socket.local_addr().unwrap().as_socket().unwrap()),
        other => other.clone(),
    };
    (socket, address)
}

fn resolve(address: &Address) -> (Domain, SockAddr) {
    match address {
        Address::Tcp(address) => (Domain::for_address(*address), (*address).into()),
        Address::Unix(name) => (Domain::UNIX, SockAddr::unix(format!("\0{name}")).unwrap()),
        other => panic!("{other} is not a socket"),
    }
}

/// A frame of a handshake message.
pub(crate) fn encoded(kind: FrameKind, value: &impl Wire) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    frame(kind, 0, &encoder.finish().unwrap().body)
}

/// A frame with a body alone.
pub(crate) fn frame(kind: FrameKind, call: u64, body: &[u8]) -> Vec<u8> {
    let mut header = FrameHeader::new(kind, CallId(call));
    header.length = body.len() as u64;
    header.body_len = body.len() as u32;
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// The descriptor of a message with these tensors, in chunks of the least size.
pub(crate) fn announced(number: u64, call: u64, tensors: &[RawTensor]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut data = 0;
    for tensor in tensors {
        TensorTable::push(&mut table, tensor.meta().dtype, &tensor.meta().shape).unwrap();
        data += tensor.bytes().len() as u64;
    }
    let mut header = FrameHeader::new(FrameKind::Reply, CallId(call));
    header.length = table.len() as u64 + data;
    header.table_len = table.len() as u32;
    header.tensors = tensors.len() as u16;
    descriptor(number, &header, &table)
}

/// The same for a single tensor of this many bytes, which need not exist.
pub(crate) fn announced_bytes(number: u64, call: u64, bytes: usize) -> Vec<u8> {
    let mut table = Vec::new();
    TensorTable::push(&mut table, DType::U8, &[bytes]).unwrap();
    let mut header = FrameHeader::new(FrameKind::Reply, CallId(call));
    header.length = (table.len() + bytes) as u64;
    header.table_len = table.len() as u32;
    header.tensors = 1;
    descriptor(number, &header, &table)
}

/// A descriptor that contains this header, and this after it.
pub(crate) fn descriptor(number: u64, header: &FrameHeader, rest: &[u8]) -> Vec<u8> {
    let mut body = header.to_bytes().to_vec();
    body.extend_from_slice(rest);
    let mut outer = FrameHeader::new(FrameKind::Descriptor, CallId(number));
    outer.context = MIN_CHUNK;
    outer.length = body.len() as u64;
    outer.body_len = body.len() as u32;
    let mut bytes = outer.to_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

/// A chunk of an announced message.
pub(crate) fn chunk(number: u64, index: usize, data: &[u8]) -> Vec<u8> {
    let mut header = FrameHeader::new(FrameKind::Chunk, CallId(number));
    header.context = index as u64;
    header.length = data.len() as u64;
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes
}

/// Reads the header of the next frame.
pub(crate) fn read_header(socket: &mut Socket) -> FrameHeader {
    let mut header = [0; HEADER_LEN];
    socket.read_exact(&mut header).unwrap();
    FrameHeader::from_bytes(&header, u64::MAX).unwrap()
}

/// Reads the next frame: its header, and all that follows it.
pub(crate) fn read_frame(socket: &mut Socket) -> (FrameHeader, Vec<u8>) {
    let header = read_header(socket);
    let mut rest = vec![0; header.length as usize];
    socket.read_exact(&mut rest).unwrap();
    (header, rest)
}

/// Reads the next `count` messages from the bulk lane, in the order of their completion: the header of each, and all that
/// follows it. Those in chunks have been announced on the control lane.
pub(crate) fn read_large(lanes: &mut Lanes, count: usize) -> Vec<(FrameHeader, Vec<u8>)> {
    let mut announced: Vec<(FrameHeader, u64, Vec<u8>, u64)> = Vec::new();
    let mut complete = Vec::new();
    while complete.len() < count {
        let (header, bytes) = read_frame(&mut lanes.bulk);
        if header.kind != FrameKind::Chunk {
            complete.push((header, bytes));
            continue;
        }
        while announced.len() < header.call.0 as usize {
            let (descriptor, head) = read_frame(&mut lanes.control);
            if descriptor.kind == FrameKind::Descriptor {
                let header =
                    FrameHeader::from_bytes(head[..HEADER_LEN].try_into().unwrap(), u64::MAX).unwrap();
                let mut whole = head[HEADER_LEN..].to_vec();
                whole.resize(header.length as usize, 0);
                let data = header.length - (head.len() - HEADER_LEN) as u64;
                announced.push((header, descriptor.context, whole, data));
            }
        }
        let (message, chunk, whole, left) = &mut announced[header.call.0 as usize - 1];
        let data = (message.body_len + message.table_len) as usize;
        let start = data + (header.context * *chunk) as usize;
        whole[start..start + bytes.len()].copy_from_slice(&bytes);
        *left -= bytes.len() as u64;
        if *left == 0 {
            complete.push((*message, std::mem::take(whole)));
        }
    }
    complete
}

/// Waits for the other side to close; returns its last bytes.
pub(crate) fn read_to_end(socket: &mut Socket) -> Vec<u8> {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("not closed: {error}"),
    }
    bytes
}

/// Ends the outgoing direction alone.
pub(crate) fn fall_silent(socket: &Socket) {
    socket.shutdown(Shutdown::Write).unwrap();
}
