//! Members that die while their world assembles, and the successors that take their ranks.

use std::path::Path;
use std::time::Duration;

use telegrad_rpc::extension::foreign::ForeignMember;
use telegrad_rpc::{Options, Result, StoreServer, World, init_with, remote};
use telegrad_testkit::{Board, Cluster, Member};

/// The size of the world. One more process of the cluster succeeds the member that dies.
const SIZE: u32 = 3;

/// Time for a member to start waiting for the others. A slower member makes a test weaker, not fail.
const SETTLING: Duration = Duration::from_millis(400);

#[remote]
fn name() -> Result<String> {
    Ok(World::current()?.name().into())
}

fn join(init_method: &str, rank: u32) -> Result<World> {
    let options = Options::default()
        .init_method(init_method)
        .rank(rank)
        .world_size(SIZE)
        .rendezvous_timeout(Duration::from_secs(30));
    init_with(&format!("w{rank}"), options)
}

/// Two members join and `victim` is killed; then the third member joins, and the victim's successor.
fn replace_a_dead_member(member: &Member, board: &Board, init_method: &str, victim: u32) {
    let last = if victim == 2 { 1 } else { 2 };
    let rank = match member.rank() {
        // The process beyond the world kills the victim, and succeeds it.
        SIZE => {
            board.wait_for("joining", 2);
            std::thread::sleep(SETTLING);
            board.kill(victim);
            board.raise("killed");
            std::thread::sleep(SETTLING);
            assert_eq!(board.count("met"), 0, "a world assembled with a dead member");
            victim
        }
        rank if rank == last => {
            board.wait("killed");
            rank
        }
        rank => rank,
    };
    board.raise("joining");
    let world = join(init_method, rank).unwrap();
    board.raise("met");
    for other in 0..SIZE {
        assert_eq!(world.rpc_sync(other, name, ()).unwrap(), format!("w{other}"));
    }
    world.shutdown().unwrap();
}

fn replace_in_a_file(victim: u32) {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::processes(SIZE as usize + 1).may_die(victim);
    let board = cluster.board();
    cluster.run_by_hand(move |member| {
        if member.rank() == SIZE {
            board.post("init_method", &store_in(directory.path()));
        }
        let init_method = board.read("init_method");
        replace_a_dead_member(&member, &board, &init_method, victim);
    });
}

fn store_in(directory: &Path) -> String {
    format!("file://{}", directory.join("store").display())
}

fn replace_at_a_port(victim: u32) {
    let cluster = Cluster::processes(SIZE as usize + 1).may_die(victim);
    let board = cluster.board();
    cluster.run_by_hand(move |member| {
        if member.rank() == SIZE {
            // The port of a closed store is free, and the system does not assign it again so soon.
            let address = StoreServer::bind("127.0.0.1:0").unwrap().address();
            board.post("init_method", &format!("tcp://{address}"));
        }
        let init_method = board.read("init_method");
        replace_a_dead_member(&member, &board, &init_method, victim);
    });
}

#[test]
fn a_successor_joins_in_a_file() {
    replace_in_a_file(1);
}

#[test]
fn a_successor_of_rank_0_joins_in_a_file() {
    replace_in_a_file(0);
}

#[test]
fn a_successor_joins_at_a_port() {
    replace_at_a_port(1);
}

#[test]
fn a_successor_of_the_host_of_the_store_joins_at_a_port() {
    replace_at_a_port(0);
}

#[test]
fn a_member_that_timed_out_can_join_again_in_memory() {
    let init_method = "mem://joins-again";
    let hasty = Options::default()
        .init_method(init_method)
        .rank(1)
        .world_size(SIZE)
        .rendezvous_timeout(Duration::from_millis(50));
    std::thread::scope(|scope| {
        let members: Vec<_> = [0, 2]
            .into_iter()
            .map(|rank| scope.spawn(move || join(init_method, rank)))
            .collect();
        // Succeeds if the other members are there in time, because the world is complete then.
        let first = init_with("w1", hasty);
        let first = first.or_else(|_| join(init_method, 1)).unwrap();
        for member in members {
            let world = member.join().unwrap().unwrap();
            assert_eq!(world.rpc_sync(1, name, ()).unwrap(), "w1");
            world.shutdown_now();
        }
        first.shutdown_now();
    });
}

#[test]
fn the_rank_of_a_live_member_is_taken() {
    let worlds: Vec<World> = std::thread::scope(|scope| {
        let members = (0..SIZE).map(|rank| scope.spawn(move || join("mem://taken", rank)));
        let members: Vec<_> = members.collect();
        members
            .into_iter()
            .map(|member| member.join().unwrap().unwrap())
            .collect()
    });
    let error = join("mem://taken", 1).unwrap_err().to_string();
    let expected =
        "worker `w1` cannot join as rank 1, which worker `w1` has already: give each worker its own rank";
    assert_eq!(error, expected);
    drop(worlds);
}

#[test]
fn a_complete_world_takes_no_successor() {
    let cluster = Cluster::processes(SIZE as usize + 1).may_die(1);
    let directory = tempfile::tempdir().unwrap();
    let board = cluster.board();
    cluster.run_by_hand(move |member| {
        if member.rank() == SIZE {
            board.post("init_method", &store_in(directory.path()));
            board.wait_for("met", SIZE as usize);
            board.kill(1);
            let error = join(&board.read("init_method"), 1).unwrap_err().to_string();
            let expected = "was complete before worker `w1` joined, with another worker as rank 1";
            assert!(error.contains(expected), "{error}");
            return board.raise("refused");
        }
        let world = join(&board.read("init_method"), member.rank()).unwrap();
        board.raise("met");
        board.wait("refused");
        world.shutdown().unwrap();
    });
}

#[test]
fn a_hostile_name_is_refused_and_shown_without_control_characters() {
    let options = |rank| {
        Options::default()
            .init_method("mem://hostile")
            .rank(rank)
            .world_size(2)
            .rendezvous_timeout(Duration::from_secs(30))
    };
    std::thread::scope(|scope| {
        let hostile = scope.spawn(|| ForeignMember::take("\x1b[2J", &options(1), Vec::new()).is_err());
        let error = init_with("w0", options(0)).unwrap_err().to_string();
        assert!(
            error.starts_with("rank 1 has the name `␛[2J`, which contains '\\u{1b}'"),
            "{error}"
        );
        assert!(hostile.join().unwrap());
    });
}
