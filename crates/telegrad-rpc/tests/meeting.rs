//! Members that die while their world assembles, and their successors.

use std::path::Path;
use std::time::Duration;

use telegrad_rpc::foreign::Seat;
use telegrad_rpc::{Options, Result, StoreServer, World, init_with, remote};
use telegrad_testkit::{Board, Cluster, Member};

/// The workers of the world. One more process of the cluster takes the place of the one that dies.
const SIZE: u32 = 3;

/// Time for a member to come to where it waits for the others. Were it not there yet, the test would
/// show less, and not fail.
const WHILE: Duration = Duration::from_millis(400);

#[remote]
fn name() -> Result<String> {
    Ok(World::current()?.name().into())
}

fn join(place: &str, rank: u32) -> Result<World> {
    let options = Options::default()
        .init_method(place)
        .rank(rank)
        .world_size(SIZE)
        .rendezvous_timeout(Duration::from_secs(30));
    init_with(&format!("w{rank}"), options)
}

/// Two members meet and `victim` is killed; the third comes, and then the victim's successor.
fn a_successor_takes_the_place(member: &Member, board: &Board, place: &str, victim: u32) {
    let last = if victim == 2 { 1 } else { 2 };
    let rank = match member.rank() {
        // The process beyond the world watches, and succeeds.
        SIZE => {
            board.wait_for("joining", 2);
            std::thread::sleep(WHILE);
            board.kill(victim);
            board.raise("killed");
            std::thread::sleep(WHILE);
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
    let world = join(place, rank).unwrap();
    board.raise("met");
    for other in 0..SIZE {
        assert_eq!(world.rpc_sync(other, name, ()).unwrap(), format!("w{other}"));
    }
    world.shutdown().unwrap();
}

fn in_a_file(victim: u32) {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::processes(SIZE as usize + 1).may_die(victim);
    let board = cluster.board();
    cluster.run_by_hand(move |member| {
        if member.rank() == SIZE {
            board.post("place", &path_in(directory.path()));
        }
        let place = board.read("place");
        a_successor_takes_the_place(&member, &board, &place, victim);
    });
}

fn path_in(directory: &Path) -> String {
    format!("file://{}", directory.join("store").display())
}

fn at_a_port(victim: u32) {
    let cluster = Cluster::processes(SIZE as usize + 1).may_die(victim);
    let board = cluster.board();
    cluster.run_by_hand(move |member| {
        if member.rank() == SIZE {
            // The port of a store that is gone is free, and this host gives it to no other so soon.
            let address = StoreServer::bind("127.0.0.1:0").unwrap().address();
            board.post("place", &format!("tcp://{address}"));
        }
        let place = board.read("place");
        a_successor_takes_the_place(&member, &board, &place, victim);
    });
}

#[test]
fn a_member_that_dies_in_a_file_leaves_its_place() {
    in_a_file(1);
}

#[test]
fn the_first_member_that_dies_in_a_file_leaves_its_place() {
    in_a_file(0);
}

#[test]
fn a_member_that_dies_at_a_port_leaves_its_place() {
    at_a_port(1);
}

#[test]
fn the_host_of_the_store_that_dies_leaves_its_place() {
    at_a_port(0);
}

#[test]
fn a_member_that_gives_up_leaves_its_place_in_memory() {
    let place = "mem://leaves-its-place";
    let hasty = Options::default()
        .init_method(place)
        .rank(1)
        .world_size(SIZE)
        .rendezvous_timeout(Duration::from_millis(50));
    std::thread::scope(|scope| {
        let members: Vec<_> = [0, 2]
            .into_iter()
            .map(|rank| scope.spawn(move || join(place, rank)))
            .collect();
        // The others may or may not be there: with them, the world would be complete.
        let first = init_with("w1", hasty);
        let first = first.or_else(|_| join(place, 1)).unwrap();
        for member in members {
            let world = member.join().unwrap().unwrap();
            assert_eq!(world.rpc_sync(1, name, ()).unwrap(), "w1");
            world.shutdown_now();
        }
        first.shutdown_now();
    });
}

#[test]
fn a_rank_of_a_living_member_is_taken() {
    let worlds: Vec<World> = std::thread::scope(|scope| {
        let members = (0..SIZE).map(|rank| scope.spawn(move || join("mem://taken", rank)));
        let members: Vec<_> = members.collect();
        members
            .into_iter()
            .map(|member| member.join().unwrap().unwrap())
            .collect()
    });
    let error = join("mem://taken", 1).unwrap_err().to_string();
    assert_eq!(error, "worker `w1` has rank 1, which worker `w1` has already");
    drop(worlds);
}

#[test]
fn a_complete_world_takes_no_successor() {
    let cluster = Cluster::processes(SIZE as usize + 1).may_die(1);
    let directory = tempfile::tempdir().unwrap();
    let board = cluster.board();
    cluster.run_by_hand(move |member| {
        if member.rank() == SIZE {
            board.post("place", &path_in(directory.path()));
            board.wait_for("met", SIZE as usize);
            board.kill(1);
            let error = join(&board.read("place"), 1).unwrap_err().to_string();
            let expected = "was complete before worker `w1` joined, with another worker as rank 1";
            assert!(error.contains(expected), "{error}");
            return board.raise("refused");
        }
        let world = join(&board.read("place"), member.rank()).unwrap();
        board.raise("met");
        board.wait("refused");
        world.shutdown().unwrap();
    });
}

#[test]
fn the_name_of_a_hostile_member_is_refused_and_shown_without_its_control_characters() {
    let options = |rank| {
        Options::default()
            .init_method("mem://hostile")
            .rank(rank)
            .world_size(2)
            .rendezvous_timeout(Duration::from_secs(30))
    };
    std::thread::scope(|scope| {
        let hostile = scope.spawn(|| Seat::take("\x1b[2J", &options(1), Vec::new()).is_err());
        let error = init_with("w0", options(0)).unwrap_err().to_string();
        assert!(
            error.starts_with("rank 1 has the name `␛[2J`, which contains '\\u{1b}'"),
            "{error}"
        );
        assert!(hostile.join().unwrap());
    });
}
