#!/usr/bin/env python3
"""One section of `telegrad-bench`, measured on torch.distributed.rpc.

    python3 torch_rpc.py --check            # checks that this Python has torch's RPC
    python3 torch_rpc.py latency --quick    # prints one JSON object per value

Starts the processes of a world, each of which runs `torch_rpc_worker.py`. Metrics and parameters are those of
`telegrad-bench`, which starts this file and joins the lines of both. One value differs: functions of the program are
`call=python_udf` here and `call=user_function` there.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time

# World sizes of each section.
WORLDS = {
    "latency": [2],
    "throughput": [2],
    "echo": [2],
    "mixed": [2],
    "rref": [2],
    "autograd": [2],
    "chain": [4],
    "split": [2, 3],
    "ps": [5, 9],
    "fanout": [9],
    "init": [2, 4, 8, 16],
}

# Larger worlds are left out of quick runs.
QUICK_WORLD = 9


def check():
    """Prints the version of torch; fails if torch or its RPC is missing."""
    import torch
    import torch.distributed.rpc

    torch.distributed.rpc.TensorPipeRpcBackendOptions
    print(json.dumps({"framework": "torch.rpc", "version": torch.__version__}))


def end_with_input():
    """Ends this process when its standard input, a pipe without data, is closed: the benchmark has ended."""
    def watch():
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run_world(args, world):
    """Runs the processes of one world; kills all of them when one fails."""
    rpc_port, store_port = free_ports(2)
    # One compute thread per process, as in Telegrad's workers: the processes share the cores.
    env = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo")
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_rpc_worker.py")
    processes = []
    for rank in range(world):
        config = {
            "section": args.section, "rank": rank, "world": world, "rpc_port": rpc_port, "store_port": store_port,
            "quick": args.quick, "max_mb": args.max_mb, "tcp": args.tcp,
            "end_with_input": args.end_with_input,
        }
        processes.append(subprocess.Popen([sys.executable, worker, json.dumps(config)], env=env))
    while any(p.poll() is None for p in processes):
        if any(p.returncode for p in processes):
            break
        time.sleep(0.02)
    failed = {rank: p.returncode for rank, p in enumerate(processes) if p.returncode}
    for p in processes:
        if p.poll() is None:
            p.kill()
        p.wait()
    if failed:
        sys.exit("%s in a world of %d: rank %s" % (
            args.section, world, ", ".join("%d ended with status %d" % pair for pair in failed.items())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", nargs="?", choices=list(WORLDS))
    parser.add_argument("--check", action="store_true", help="only check for torch")
    parser.add_argument("--quick", action="store_true", help="fewer calls, smaller worlds")
    parser.add_argument("--max-mb", type=int, default=256, help="largest payload")
    parser.add_argument("--tcp", action="store_true", help="TCP only, no shared memory")
    parser.add_argument("--end-with-input", action="store_true", help="end at the end of standard input")
    args = parser.parse_args()
    if args.check:
        return check()
    if not args.section:
        parser.error("name a section, or use --check")
    if args.end_with_input:
        end_with_input()
    for world in WORLDS[args.section]:
        if not args.quick or world <= QUICK_WORLD:
            run_world(args, world)


if __name__ == "__main__":
    main()
