"""Measurement of times, and output of values: one JSON object each."""

import json
import sys
import time

import torch

# Time limit for a measurement of single calls.
LIMIT = 6.0

clock = time.perf_counter


def emit(metric, params, unit, value, **more):
    line = {"framework": "torch.rpc", "version": torch.__version__, "metric": metric, "params": params}
    line.update(unit=unit, value=value, **more)
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def percentile(ordered, percent):
    """Nearest rank."""
    return ordered[int(round(percent / 100.0 * (len(ordered) - 1)))]


def micros(seconds):
    return round(seconds * 1e6, 2)


def emit_latency(metric, params, seconds, **more):
    """Prints times of single calls; the value is their median."""
    ordered = sorted(seconds)
    p50 = micros(percentile(ordered, 50))
    emit(metric, params, "us", p50, p50=p50, p99=micros(percentile(ordered, 99)), min=micros(ordered[0]),
         mean=micros(sum(ordered) / len(ordered)), n=len(ordered), **more)


def emit_payload(metric, size, nbytes, ways, seconds):
    """Prints times of moving `nbytes`, `ways` times each; the value is the median rate."""
    ordered = sorted(seconds)
    median, best = percentile(ordered, 50), ordered[0]

    def rate(time):
        return round(ways * nbytes / time / 1e9, 4)

    emit(metric, {"size": size}, "GB/s", rate(median), GBps_per_direction=rate(median),
         best_GBps_per_direction=rate(best), rtt_ms_p50=round(median * 1e3, 4), rtt_ms_min=round(best * 1e3, 4),
         bytes=nbytes, n=len(ordered))


def emit_rate(metric, params, unit, seconds, prefix):
    """Prints times of rounds; the value is the number of rounds per second."""
    ordered = sorted(seconds)
    more = {prefix + "_us_p50": micros(percentile(ordered, 50)), prefix + "_us_p99": micros(percentile(ordered, 99))}
    emit(metric, params, unit, round(len(ordered) / sum(ordered), 1), n=len(ordered), **more)


def times(call, count, warmup=None):
    """Returns the times of `count` runs of `call`, after a warm-up of a tenth as many."""
    stop = clock() + LIMIT
    for _ in range(max(1, count // 10) if warmup is None else warmup):
        call()
        if clock() > stop:
            break
    taken, stop = [], clock() + LIMIT
    for _ in range(count):
        start = clock()
        call()
        end = clock()
        taken.append(end - start)
        if end > stop:
            break
    return taken
