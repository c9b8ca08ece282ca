// Perfetto's trace_processor as an HTTP server, like `trace_processor_shell --httpd`.
//
// Usage: node host.js FOLDER, where FOLDER has the files of Perfetto's user interface: engine_bundle.js, trace_processor.wasm.
// Prints its port, and ends at the end of its input.
//
// The bundle is built for a web worker, so it gets the parts of that environment that it uses. It speaks Perfetto's stream protocol,
// which wraps each argument and each result in an envelope, a TraceProcessorRpc. HTTP has no envelopes.
"use strict";

const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const vm = require("node:vm");

// Without this, Node prints the line of the bundle, which has three very long lines.
process.on("uncaughtException", (error) => {
  console.error(error.stack);
  process.exit(1);
});

const read = (name) => fs.readFileSync(path.join(process.argv[2], name));

// The bundle loads trace_processor.wasm with it.
class XMLHttpRequest {
  open(_method, name) {
    this.name = name;
  }
  send() {
    this.response = read(this.name);
  }
}

const worker = vm.createContext({
  // Standard output is reserved for the port.
  console: { log: console.error, warn: console.error, error: console.error },
  crypto: require("node:crypto").webcrypto,
  location: { href: "" },
  performance,
  TextDecoder,
  URL,
  WorkerGlobalScope: Object,
  XMLHttpRequest,
});
worker.self = worker;
vm.runInContext(read("engine_bundle.js").toString(), worker, { displayErrors: false });
const Bytes = vm.runInContext("Uint8Array", worker);

// The engine posts its answers before it returns.
let answers = [];
const port = { postMessage: (bytes) => answers.push(bytes) };
worker.onmessage({ data: port });

// The parts of Protocol Buffers that envelopes need: varints and length-delimited fields.
function varint(value) {
  const bytes = [];
  for (; value > 127; value >>>= 7) bytes.push((value & 127) | 128);
  return Buffer.from([...bytes, value]);
}

const numeric = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const delimited = (field, bytes) => Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);

function* fields(message) {
  let at = 0;
  const number = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = message[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = number();
    const value = number();
    if ((tag & 7) === 2) {
      yield [tag >>> 3, message.subarray(at, at + value)];
      at += value;
    } else if ((tag & 7) !== 0) {
      throw new Error(`an envelope has a field of type ${tag & 7}`);
    }
  }
}

// The fields of a TraceProcessorRpc, and those for the argument and the result of its methods.
const [NUMBER, METHOD, FATAL_ERROR] = [1, 2, 5];
const METHODS = {
  "/parse": { method: 1, argument: 101, result: 201 },
  "/notify_eof": { method: 2, result: 212 },
  "/query": { method: 3, argument: 103, result: 203 },
};

let asked = 0;
function ask({ method, argument, result }, body) {
  const envelope = [numeric(NUMBER, ++asked), numeric(METHOD, method)];
  if (argument) envelope.push(delimited(argument, body));
  answers = [];
  port.onmessage({ data: new Bytes(delimited(1, Buffer.concat(envelope))) });
  const results = [];
  for (const [, answer] of fields(Buffer.concat(answers))) {
    for (const [field, value] of fields(answer)) {
      if (field === FATAL_ERROR) throw new Error(value.toString());
      if (field === result) results.push(value);
    }
  }
  if (!results.length) throw new Error(`method ${method} has no result`);
  // Concatenated parts of a message are the message.
  return Buffer.concat(results);
}

const server = http.createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  response.end(ask(METHODS[request.url], Buffer.concat(parts)));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
