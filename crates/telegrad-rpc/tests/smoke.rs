use std::time::Duration;
use telegrad_rpc::{Options, Result, Transport, World, init_with, join_all, remote};

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[remote]
fn fail(s: String) -> Result<i64, String> {
    Err(format!("no {s}"))
}

#[remote]
async fn later(a: i64) -> i64 {
    a * 2
}

#[remote]
fn nest(depth: u32, peer: String) -> Result<u32> {
    if depth == 0 {
        return Ok(0);
    }
    let world = World::current()?;
    let me = world.name().to_owned();
    Ok(1 + world.rpc_sync(&peer, nest, (depth - 1, me))?)
}
#[remote]
fn blob(v: Vec<u8>) -> Vec<u8> {
    v
}

fn pair(method: &str, transport: Transport) {
    let run = |rank: u32, name: &'static str| {
        let options = Options {
            init_method: method.into(),
            rank: Some(rank),
            world_size: Some(2),
            transport,
            num_worker_threads: 1,
            rendezvous_timeout: Duration::from_secs(10),
            ..Options::default()
        };
        std::thread::spawn(move || {
            let world = init_with(name, options).unwrap();
            let w2 = world.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(4));
                eprintln!("{} {}", w2.name(), w2.debug_info());
            });
            if rank == 0 {
                assert_eq!(world.rpc_sync("b", add, (1, 2)).unwrap(), 3);
                for i in 0..1000 {
                    assert_eq!(world.rpc_sync("b", add, (1, i)).unwrap(), 1 + i);
                }
                println!("{}", world.rpc_sync("b", fail, ("x".into(),)).unwrap_err());
                assert_eq!(world.rpc_sync("b", later, (4,)).unwrap(), 8);
                assert_eq!(world.rpc_sync("b", nest, (8, "a".into())).unwrap(), 8);
                let futs: Vec<_> = (0..100)
                    .map(|_| world.rpc_async("b", nest, (8, "a".into())).unwrap())
                    .collect();
                assert_eq!(join_all(futs).wait().unwrap(), vec![8; 100]);
                let big: Vec<u8> = (0..10_000_000).map(|i| i as u8).collect();
                assert_eq!(world.rpc_sync("b", blob, (big.clone(),)).unwrap(), big);
                let f = world.rpc_async("b", add, (1, 1)).unwrap().then(|r| Ok(r? + 1));
                assert_eq!(f.wait().unwrap(), 3);
                println!("{}", world.debug_info());
            }
            world.barrier().unwrap();
            assert_eq!(world.all_gather(&(rank * 10)).unwrap(), vec![0, 10]);
            world.shutdown().unwrap();
        })
    };
    let a = run(0, "a");
    let b = run(1, "b");
    a.join().unwrap();
    b.join().unwrap();
}

#[test]
fn mem() {
    pair("mem://x", Transport::Auto);
}
#[test]
fn unix() {
    pair("mem://u", Transport::Unix);
}
#[test]
fn tcp() {
    pair("mem://t", Transport::Tcp);
}
