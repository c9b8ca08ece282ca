"""One process of a world of torch.distributed.rpc; rank 0 measures. Started by `torch_rpc.py`."""

import json
import sys
import threading
import time
from collections import deque

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.optim import DistributedOptimizer

from torch_rpc import end_with_input
from values import clock, emit, emit_latency, emit_payload, emit_rate, times

KB, MB = 1024, 1024 * 1024
PAYLOADS = [("4KB", 4 * KB), ("64KB", 64 * KB), ("1MB", MB), ("16MB", 16 * MB), ("64MB", 64 * MB), ("256MB", 256 * MB)]
FLOWS = [("64MB", 64 * MB), ("256MB", 256 * MB)]
SIZES = [("tiny", 2), ("1MB", MB // 4)]
OUTSTANDING = 64

# Time limit for the small calls during large transfers.
MIXED_LIMIT = 12.0


# Functions that workers call ---------------------------------------------------------------------------

def nop(i):
    return i


def give_back(t):
    return t


def sink(t):
    return t.numel()


def owned():
    from torch._C._distributed_rpc import _rref_context_get_debug_info
    return int(_rref_context_get_debug_info()["num_owner_rrefs"])


def multiply_on(t, rest):
    t = t * 1.5
    return rpc.rpc_sync(rest[0], multiply_on, args=(t, rest[1:])) if rest else t


def parameters_of(module):
    return [rpc.RRef(p) for p in module.local_value().parameters()]


class Counter:
    def __init__(self):
        self.n = 0

    def bump(self, by):
        self.n += by
        return self.n


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 256)

    def forward(self, x):
        return torch.relu(self.layer(x))


class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 10)

    def forward(self, x):
        return self.layer(x)


class Shard:
    """The parameters of the parameter server."""

    lock = threading.Lock()
    params = torch.zeros(MB // 4)


def push(gradient):
    with Shard.lock:
        Shard.params.add_(gradient, alpha=-0.01)


def pull():
    with Shard.lock:
        return Shard.params.clone()


def push_pull(gradient):
    with Shard.lock:
        Shard.params.add_(gradient, alpha=-0.01)
        return Shard.params.clone()


def client(steps, combined):
    gradient = torch.ones(MB // 4)
    for _ in range(steps):
        if combined:
            rpc.rpc_sync("w0", push_pull, args=(gradient,))
        else:
            pushed, pulled = rpc.rpc_async("w0", push, args=(gradient,)), rpc.rpc_async("w0", pull)
            pushed.wait()
            pulled.wait()


# Sections --------------------------------------------------------------------------------------------------

def ones2():
    return torch.ones(2), torch.ones(2)


def latency(config):
    count = 500 if config["quick"] else 4000
    a, b = ones2()
    emit_latency("rpc_sync_latency", {"call": "builtin_add_ones2"},
                 times(lambda: rpc.rpc_sync("w1", torch.add, args=(a, b)), count))
    emit_latency("rpc_sync_latency", {"call": "python_udf"},
                 times(lambda: rpc.rpc_sync("w1", nop, args=(7,)), count))


def throughput(config):
    count = 2000 if config["quick"] else 20000
    a, b = ones2()
    calls = {
        "builtin_add_ones2": lambda: rpc.rpc_async("w1", torch.add, args=(a, b)),
        "python_udf": lambda: rpc.rpc_async("w1", nop, args=(7,)),
    }
    for name, call in calls.items():
        for _ in range(200):
            call().wait()
        window, start = deque(), clock()
        for _ in range(count):
            if len(window) == OUTSTANDING:
                window.popleft().wait()
            window.append(call())
        while window:
            window.popleft().wait()
        emit("rpc_async_throughput", {"call": name, "outstanding": OUTSTANDING}, "calls/s",
             round(count / (clock() - start), 1), n=count)


def echo(config):
    budget, most, least = (256 * MB, 200, 3) if config["quick"] else (1024 * MB, 1000, 5)
    for size, nbytes in PAYLOADS:
        if nbytes > config["max_mb"] * MB:
            continue
        t = torch.ones(nbytes // 4)
        count = max(least, min(most, budget // nbytes))
        warmup = min(20, max(2, count // 5))
        for metric, function, ways in (("tensor_echo", give_back, 2), ("tensor_sink", sink, 1)):
            taken = times(lambda: rpc.rpc_sync("w1", function, args=(t,)), count, warmup)
            emit_payload(metric, size, nbytes, ways, taken)


def mixed(config):
    count, least = (300, 0.3) if config["quick"] else (2000, 2.0)
    a, b = ones2()

    def small():
        rpc.rpc_sync("w1", torch.add, args=(a, b))

    emit_latency("mixed_latency", {"while": "idle"}, times(small, count))
    for size, nbytes in FLOWS:
        if nbytes > config["max_mb"] * MB:
            continue
        large, stop, flowed = torch.ones(nbytes // 4), threading.Event(), []

        def flow():
            while not stop.is_set():
                flowed.append(rpc.rpc_sync("w1", sink, args=(large,)))

        thread = threading.Thread(target=flow)
        thread.start()
        taken, start = [], clock()
        while (len(taken) < count or clock() - start < least) and clock() - start < MIXED_LIMIT:
            call = clock()
            small()
            taken.append(clock() - call)
        stop.set()
        thread.join()
        emit_latency("mixed_latency", {"while": size + " tensors flow"}, taken, tensors=len(flowed))


def rref(config):
    count = 300 if config["quick"] else 2000
    a, b = ones2()
    emit_latency("rref_remote_to_here_latency", {"call": "builtin_add_ones2"},
                 times(lambda: rpc.remote("w1", torch.add, args=(a, b)).to_here(), count))
    emit_latency("rref_remote_to_here_latency", {"call": "python_udf"},
                 times(lambda: rpc.remote("w1", nop, args=(1,)).to_here(), count))
    counter = rpc.remote("w1", Counter)
    emit_latency("rref_method_latency", {"call": "rref.rpc_sync().bump"},
                 times(lambda: counter.rpc_sync().bump(1), count))

    def left():
        return rpc.rpc_sync("w1", owned)

    # Waits until the owner has released the references of the loops above; the counter stays.
    deadline = clock() + 20
    while left() > 1 and clock() < deadline:
        time.sleep(0.02)
    base = left()
    start = clock()
    held = [rpc.remote("w1", torch.add, args=(a, b)) for _ in range(count)]
    issued = clock() - start
    for reference in held:
        while not reference.confirmed_by_owner():
            time.sleep(0.0002)
    confirmed = clock() - start
    del reference
    start = clock()
    held.clear()
    while left() > base:
        if clock() - start > 20:
            raise RuntimeError("the owner still holds references after 20 s")
    deleted = clock() - start
    for metric, params, taken in (("rref_create_issue_rate", {}, issued),
                                  ("rref_create_confirmed_rate", {}, confirmed),
                                  ("rref_delete_rate", {"until": "owner_released"}, deleted)):
        emit(metric, params, "rrefs/s", round(count / taken, 1), n=count)


def gradient(x, forward):
    with dist_autograd.context() as context:
        dist_autograd.backward(context, [forward().sum()])
        return dist_autograd.get_gradients(context)[x]


def one_by_one(x, factor, workers):
    def forward():
        y = x
        for worker in workers:
            y = rpc.rpc_sync(worker, torch.mul, args=(y, factor))
        return y

    return gradient(x, forward)


def nested(x, workers):
    return gradient(x, lambda: rpc.rpc_sync(workers[0], multiply_on, args=(x, workers[1:])))


def gradient_case(elements):
    return torch.ones(elements, requires_grad=True), torch.full((elements,), 1.5)


def autograd(config):
    for size, elements in SIZES:
        count = (1000 if size == "tiny" else 200) // (10 if config["quick"] else 1)
        x, factor = gradient_case(elements)
        assert torch.allclose(one_by_one(x, factor, ["w1"]), factor)
        emit_latency("dist_autograd_step", {"size": size, "workers": 2},
                     times(lambda: one_by_one(x, factor, ["w1"]), count))


def chain(config):
    world = config["world"]
    workers = ["w%d" % rank for rank in range(1, world)]
    for size, elements in SIZES:
        count = (500 if size == "tiny" else 100) // (10 if config["quick"] else 1)
        x, factor = gradient_case(elements)
        for shape, step in (("driver_calls_each", lambda: one_by_one(x, factor, workers)),
                            ("nested_calls", lambda: nested(x, workers))):
            emit_latency("dist_autograd_chain", {"size": size, "workers": world, "shape": shape}, times(step, count))


def split(config):
    steps = 60 if config["quick"] else 400
    torch.manual_seed(0)
    x, labels = torch.randn(64, 784), torch.randint(0, 10, (64,))
    loss_of = nn.CrossEntropyLoss()
    if config["world"] == 2:
        whole = nn.Sequential(Front(), Back())
        local = torch.optim.SGD(whole.parameters(), lr=0.05)

        def local_step():
            local.zero_grad()
            loss_of(whole(x), labels).backward()
            local.step()

        emit_rate("split_learning_local_reference", {}, "steps/s", times(local_step, steps), "step")
        front, back = Front(), rpc.remote("w1", Back)
        params = [rpc.RRef(p) for p in front.parameters()]

        def forward():
            return back.rpc_sync().forward(front(x))
    else:
        front, back = rpc.remote("w2", Front), rpc.remote("w1", Back)
        params = rpc.rpc_sync("w2", parameters_of, args=(front,))

        def forward():
            return back.rpc_sync().forward(front.rpc_sync().forward(x))

    params += rpc.rpc_sync("w1", parameters_of, args=(back,))
    optimizer = DistributedOptimizer(torch.optim.SGD, params, lr=0.05)
    losses = []

    def step():
        with dist_autograd.context() as context:
            loss = loss_of(forward(), labels)
            dist_autograd.backward(context, [loss])
            optimizer.step(context)
        losses.append(loss.item())

    taken = times(step, steps)
    assert losses[-1] < losses[0]
    emit_rate("split_learning", {"processes": config["world"], "batch": 64}, "steps/s", taken, "step")


def ps(config):
    workers = ["w%d" % rank for rank in range(1, config["world"])]

    def run(steps, combined):
        start = clock()
        for run in [rpc.rpc_async(worker, client, args=(steps, combined)) for worker in workers]:
            run.wait()
        return clock() - start

    steps = 20 if config["quick"] else 100
    for mode, combined in (("push_and_pull_separate", False), ("push_pull_one_call", True)):
        run(5, combined)
        rate = len(workers) * steps / run(steps, combined)
        emit("parameter_server", {"clients": len(workers), "mode": mode, "size": "1MB"}, "steps/s", round(rate, 1),
             GBps_both_directions=round(2 * rate * MB / 1e9, 4))


def fanout(config):
    workers = ["w%d" % rank for rank in range(1, config["world"])]
    for size, elements in SIZES:
        count = (100 if config["quick"] else 1000) if size == "tiny" else (20 if config["quick"] else 100)
        a, b = torch.ones(elements), torch.ones(elements)
        calls = {"builtin_add": lambda worker: rpc.rpc_async(worker, torch.add, args=(a, b))}
        if size == "tiny":
            calls["python_udf"] = lambda worker: rpc.rpc_async(worker, nop, args=(1,))
        for name, call in calls.items():
            def round_trip():
                for answer in [call(worker) for worker in workers]:
                    answer.wait()

            emit_rate("fanout", {"workers": len(workers), "call": name, "size": size}, "rounds/s",
                      times(round_trip, count), "round")


# Lifecycle of a world -------------------------------------------------------------------------------

def usage():
    """Returns the resident memory in MB and the threads of this process."""
    with open("/proc/self/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    return {"rss": int(fields["VmRSS"].split()[0]) / 1024, "threads": int(fields["Threads"])}


def join(config):
    options = {"_transports": ["uv"], "_channels": ["basic"]} if config["tcp"] else {}
    options = rpc.TensorPipeRpcBackendOptions(
        init_method="tcp://127.0.0.1:%d" % config["rpc_port"], rpc_timeout=300, **options)
    rpc.init_rpc("w%d" % config["rank"], rank=config["rank"], world_size=config["world"], rpc_backend_options=options)


def lifecycle(config):
    """Runs each stage on all ranks together. Its duration is from the first start to the last end, on the clock that all
    processes share."""
    rank, world = config["rank"], config["world"]
    store = dist.TCPStore("127.0.0.1", config["store_port"], world, rank == 0)
    mine = {}

    def meet(name):
        if store.add(name, 1) == world:
            store.set(name + " go", "1")
        store.wait([name + " go"])

    def stage(name, run):
        meet(name)
        start = time.monotonic()
        run()
        mine[name] = [start, time.monotonic()]

    def call_all():
        for other in range(world):
            if other != rank:
                rpc.rpc_sync("w%d" % other, nop, args=(0,))

    mine["before"] = usage()
    stage("init", lambda: join(config))
    mine["joined"] = usage()
    stage("mesh", call_all)
    meet("meshed")
    mine["meshed"] = usage()
    stage("shutdown", rpc.shutdown)
    store.set("of %d" % rank, json.dumps(mine))
    if rank != 0:
        store.wait(["collected"])
        store.add("gone", 1)
        return
    ranks = [json.loads(store.get("of %d" % r)) for r in range(world)]
    store.set("collected", "1")

    def span(name):
        return round((max(r[name][1] for r in ranks) - min(r[name][0] for r in ranks)) * 1e3, 2)

    def mean(name, key):
        return round(sum(r[name][key] for r in ranks) / world, 1)

    params = {"world": world}
    emit("init_rpc", params, "ms", span("init"))
    emit("first_call_full_mesh", params, "ms", span("mesh"))
    emit("graceful_shutdown", params, "ms", span("shutdown"))
    before, after = mean("before", "rss"), mean("meshed", "rss")
    emit("memory_per_process", params, "MB RSS", after, rss_before_init_mb=before,
         rss_after_init_mb=mean("joined", "rss"), threads=mean("meshed", "threads"))
    emit("memory_beyond_program", params, "MB RSS", round(after - before, 1))
    # The store is in this process, so it ends after the others have read their last value.
    deadline = time.monotonic() + 5
    while store.add("gone", 0) < world - 1 and time.monotonic() < deadline:
        time.sleep(0.01)


SECTIONS = {
    "latency": latency, "throughput": throughput, "echo": echo, "mixed": mixed, "rref": rref, "autograd": autograd,
    "chain": chain, "split": split, "ps": ps, "fanout": fanout,
}


def main():
    config = json.loads(sys.argv[1])
    if config["end_with_input"]:
        end_with_input()
    torch.set_num_threads(1)
    if config["section"] == "init":
        return lifecycle(config)
    join(config)
    if config["rank"] == 0:
        # Connections are made by the first call.
        for other in range(1, config["world"]):
            rpc.rpc_sync("w%d" % other, nop, args=(0,))
        SECTIONS[config["section"]](config)
    rpc.shutdown()


if __name__ == "__main__":
    main()
