//! Messages that arrive after the end of their context.

use telegrad_testkit::on_threads_and_processes;

use super::*;

on_threads_and_processes! { 2 => a_large_request_overtaken_by_the_end_of_its_context_is_served }

#[remote]
fn same(x: Tensor) -> Tensor {
    x
}

/// Calls another worker once the board says so.
#[remote]
fn later(x: Tensor, then: u32, board: Board) -> Result<Tensor> {
    board.raise("running");
    board.wait("run on");
    let y = World::current()?.rpc_sync(then, same, (x,));
    board.raise("ran");
    y
}

/// Occupies a thread.
#[remote]
fn occupy(board: Board) {
    board.raise("occupied");
    board.wait("free it");
}

fn weight() -> Param {
    Param::new(&numbers((2, 3), 1).unwrap()).unwrap()
}

#[test]
fn a_cancelled_call_does_not_reopen_its_context() {
    on_rank_0(Cluster::threads(3), |world, board| {
        let through = |_: &Context| {
            let call = world.rpc_async(1, later, (weight().tensor(), 2, board.clone()))?;
            board.wait("running");
            drop(call);
            Ok(())
        };
        world.context(through).unwrap();
        assert_nothing_left(&world);
        board.raise("run on");
        board.wait("ran");
        assert_nothing_left(&world);
    });
}

#[test]
fn a_call_that_outlives_its_context_is_an_ordinary_call() {
    on_rank_0(Cluster::threads(3), |world, board| {
        let weight = weight();
        let call = world.context(|_| {
            let call = world.rpc_async(1, later, (weight.tensor(), 2, board.clone()))?;
            board.wait("running");
            Ok(call)
        });
        assert_nothing_left(&world);
        board.raise("run on");
        let y = call.unwrap().wait().unwrap();
        assert!(!y.track_op());
        assert_close(&y, &weight.value());
        assert_nothing_left(&world);
    });
}

#[test]
fn a_reply_taken_after_the_end_of_its_context_is_untracked() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = weight();
        let call = world.context(|_| {
            let call = world.rpc_async(1, same, (weight.tensor(),))?;
            wait_until(PATIENCE, || call.done(), || "no reply");
            Ok(call)
        });
        let y = call.unwrap().wait().unwrap();
        assert!(!y.track_op());
        assert_close(&y, &weight.value());
    });
}

#[test]
fn an_error_in_the_closure_ends_the_context_on_all_workers() {
    on_rank_0(Cluster::threads(3), |world, board| {
        let through = |context: &Context| {
            board.raise("run on");
            let y = world.rpc_sync(1, later, (weight().tensor(), 2, board.clone()))?;
            context.backward(&[loss(&y)?])?;
            Err::<(), _>(Error::other("the closure's own"))
        };
        let error = world.context(through).unwrap_err();
        assert_eq!(error.to_string(), "the closure's own");
        assert_nothing_left(&world);
    });
}

#[test]
fn a_panic_in_the_closure_ends_the_context_on_all_workers() {
    on_rank_0(Cluster::threads(3), |world, board| {
        board.raise("run on");
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.context(|_| -> Result<()> {
                world.rpc_sync(1, later, (weight().tensor(), 2, board.clone()))?;
                panic!("in the closure");
            })
        }));
        assert!(caught.is_err());
        assert_nothing_left(&world);
        assert_eq!(world.current_context(), None);
    });
}

#[test]
fn a_busy_worker_receives_the_notice_of_the_end_later() {
    let cluster = Cluster::threads(3).options(|options| {
        if options.rank == Some(1) {
            options.num_worker_threads = 1;
        }
    });
    on_rank_0(cluster, |world, board| {
        let through = |_: &Context| {
            board.raise("run on");
            world.rpc_sync(1, later, (weight().tensor(), 2, board.clone()))?;
            world.rpc_async(1, occupy, (board.clone(),))
        };
        let occupied = world.context(through).unwrap();
        board.wait("occupied");
        assert_eq!(world.rpc_sync(2, info, ()).unwrap().contexts, 1);
        board.raise("free it");
        occupied.wait().unwrap();
        wait_for_nothing(&world, &[1, 2]);
    });
}

#[test]
fn remembered_ends_do_not_grow_while_another_context_stays_open() {
    let cluster = with_autograd(Cluster::threads(2));
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            let weight = weight();
            let short = |_: &Context| world.rpc_sync(1, same, (weight.tensor(),)).map(drop);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let open = |_: &Context| {
                        board.raise("open");
                        board.wait("close");
                        Ok(())
                    };
                    world.context(open).unwrap();
                });
                board.wait("open");
                for _ in 0..500 {
                    world.context(short).unwrap();
                }
                for rank in 0..2 {
                    let info = world.rpc_sync(rank, info, ()).unwrap();
                    assert!(info.ended_ranges < 10, "{info:?} on worker {rank}");
                }
                board.raise("close");
            });
            world.context(short).unwrap();
            assert_nothing_left(&world);
        }
        world.barrier().unwrap();
    });
}

#[remote]
fn take(x: Tensor, board: Board) -> usize {
    board.raise("taken");
    x.elem_count()
}

/// The small notice of the end does not wait for the large request.
fn a_large_request_overtaken_by_the_end_of_its_context_is_served(cluster: Cluster) {
    const TIMES: usize = 20;
    on_rank_0(cluster, |world, board| {
        let large = Tensor::zeros(1 << 19, candle_core::DType::F32, &Device::Cpu).unwrap();
        let large = Param::new(&large).unwrap();
        for _ in 0..TIMES {
            let through = |_: &Context| {
                let call = world.rpc_async(1, take, (large.tensor(), board.clone()))?;
                call.detach();
                Ok(())
            };
            world.context(through).unwrap();
        }
        board.wait_for("taken", TIMES);
        assert_nothing_left(&world);
    });
}
