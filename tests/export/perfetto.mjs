// SPDX-License-Identifier: BSD-2-Clause
// Load a trace into Perfetto's own trace processor (its WebAssembly build) and ask it:
//   node perfetto.mjs ENGINE_DIR TRACE QUERIES.json
// QUERIES: { name: "SELECT ..." }. Prints one JSON object: { name: [[column, ...], ...] },
// numbers as texts, since 64-bit ones do not fit.
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';
import { pathToFileURL } from 'node:url';

const [dir, trace, wanted] = process.argv.slice(2);
console.log = console.warn = (...text) => console.error(...text); // ours is the only output

// The engine is built for a browser's worker: that is all of one that it needs.
const file = (name) => path.join(dir, path.basename(String(name)));
globalThis.WorkerGlobalScope = function () {};
globalThis.self = globalThis;
globalThis.location = { href: 'file:///engine/worker.js' };
globalThis.XMLHttpRequest = class {
  open(_method, name) { this.name = name; }
  send() { this.response = new Uint8Array(fs.readFileSync(file(this.name))).buffer; }
};

const { EngineBase } = await import(pathToFileURL(file('engine.mjs')));
vm.runInThisContext(fs.readFileSync(file('engine_bundle.node.js'), 'utf8'),
                    { filename: 'engine_bundle.js' });

class Engine extends EngineBase {
  id = 'test';
  mode = 'WASM';
  #send;
  #queue = [];
  constructor() {
    super();
    const engine = this;
    globalThis.onmessage({ data: {
      set onmessage(fn) { engine.#send = fn; },
      // what it answers comes within our call; it must not come back into it
      postMessage(data) { queueMicrotask(() => engine.onRpcResponseBytes(new Uint8Array(data))); },
    } });
  }
  rpcSendRequestBytes(data) { this.#send({ data: new Uint8Array(data) }); }
}

// the module is compiled before the first request can be answered
await new Promise((done) => setTimeout(done, 500));
const engine = new Engine();
const answers = {};
try {
  const bytes = fs.readFileSync(trace);
  for (let at = 0; at < bytes.length; at += 1 << 20) {
    await engine.parse(new Uint8Array(bytes.subarray(at, at + (1 << 20))));
  }
  await engine.notifyEof();
  for (const [name, sql] of Object.entries(JSON.parse(fs.readFileSync(wanted, 'utf8')))) {
    const result = await engine.query(sql);
    const columns = result.columns();
    const rows = answers[name] = [];
    for (const it = result.iter({}); it.valid(); it.next()) {
      rows.push(columns.map((c) => (it.get(c) === null ? null : String(it.get(c)))));
    }
  }
} catch (e) {
  console.error(String(e && e.message ? e.message : e));
  process.exit(1);
}
process.stdout.write(JSON.stringify(answers) + '\n', () => process.exit(0));
