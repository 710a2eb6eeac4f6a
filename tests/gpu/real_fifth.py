# SPDX-License-Identifier: BSD-2-Clause
"""Eight scripts on a real GPU that get on without PyTorch's loader: servers, rings, pipes, JAX.

The labels are older than the first trace of any of them.
"""
import collections
import concurrent.futures
import io
import itertools
import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time

from real import Device, Warm, pictures
from real_more import Waits
from stranger import CPU, child, job, mortal

LOOP = "sync_bound launch_bound host_bound"


def askers(s):
    """Clients that each post a text, await the answer and pause."""
    import asyncio
    import random
    import aiohttp
    port, clients, pause, length = (float(v) for v in s.told("port").split())
    url = "http://127.0.0.1:%d/classify" % port

    async def ask(session, i):
        draw = random.Random(i)
        ids = [draw.randrange(8000) for _ in range(int(length))]
        while True:
            async with session.post(url, json={"ids": ids}) as answer:
                await answer.json()
            if pause:
                await asyncio.sleep(draw.expovariate(1e3 / pause))

    async def all_of_them():
        async with aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*[ask(session, i) for i in range(int(clients))])
    try:
        asyncio.run(all_of_them())
    except (aiohttp.ClientError, OSError):
        pass  # the server has ended


@job(outside=askers, demand="no_demand", host="host_bound", rest=LOOP)
def serve_aiohttp(s):
    """An asyncio server batches the texts of its clients; one thread of an executor classifies."""
    import asyncio
    import selectors
    import torch
    from aiohttp import web
    clients, pause = s.one("clients", 2, 6, 16, 48, 96), s.one("pause_ms", 0, 10, 40, 120)
    length, longest, window = s.one("length", 128, 256), s.one("batch", 16, 32), 0.004
    if s.fix:
        clients, pause = 96, 0
    d, n = Device(s), torch.nn
    width = 768
    layer = n.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.0, batch_first=True,
                                      norm_first=True)
    body = n.TransformerEncoder(layer, s.int("layers", 6, 12), enable_nested_tensor=False)
    embed, head = n.Embedding(8000, width), n.Linear(width, 20)
    net = n.ModuleList([embed, body, head]).to(d.dev, torch.bfloat16).eval()

    gate = threading.Lock()

    def end():
        gate.acquire()  # the executor's thread starts nothing more
        d.write()
    s.at_end = end

    def infer(texts):
        with gate, torch.inference_mode():
            ids = torch.tensor(texts)
            with d.work():
                h = body(embed(ids.to(d.dev))).mean(1)
                best = head(h).float().softmax(-1).max(-1)
            return best.indices.tolist(), best.values.tolist()

    for k in (1, longest):
        infer([[1] * length] * k)
    state = {"idle": False}

    class Quiet(selectors.DefaultSelector):
        """Nobody asks while it waits and the batcher has nothing; all else is the loop's work."""

        def __init__(self):
            super().__init__()
            self.row = None

        def turn(self, kind):
            if self.row:
                self.row.__exit__()
            self.row = s.during(kind) if kind else None
            if self.row:
                self.row.__enter__()

        def select(self, timeout=None):
            if timeout is not None and timeout <= 0:
                return super().select(timeout)
            self.turn("demand" if state["idle"] else None)
            found = super().select(timeout)
            self.turn("host")
            return found

    async def main():
        line, loop = asyncio.Queue(), asyncio.get_running_loop()
        pool = concurrent.futures.ThreadPoolExecutor(1)

        async def classify(request):
            ids = (await request.json())["ids"][:length]
            answer = loop.create_future()
            line.put_nowait((ids, answer))
            label, score = await answer
            return web.json_response({"label": label, "score": score})

        app = web.Application()
        app.router.add_post("/classify", classify)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        s.tell("port", "%d %d %d %d" % (port, clients, pause, length))
        warm = Warm(s)
        while True:
            state["idle"] = True
            items = [await line.get()]
            until = loop.time() + window
            while len(items) < longest:
                if not line.empty():
                    items.append(line.get_nowait())
                    continue
                try:
                    items.append(await asyncio.wait_for(line.get(), until - loop.time()))
                except asyncio.TimeoutError:
                    break
            state["idle"] = False
            warm.step()
            found = await loop.run_in_executor(pool, infer, [ids for ids, _ in items])
            for (_, answer), label, score in zip(items, *found):
                if not answer.done():
                    answer.set_result((label, score))

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Quiet())) as runner:
        runner.run(main())


def uploaders(s):
    """Clients that each upload pictures, one after the other."""
    import http.client
    port, clients, pause = (int(v) for v in s.told("port").split())
    blobs = []
    for path in pictures(s, 24):
        with open(path, "rb") as f:
            blobs.append(f.read())

    def upload(i):
        link = http.client.HTTPConnection("127.0.0.1", port)
        try:
            for k in itertools.count(i):
                link.request("POST", "/tag", blobs[k % len(blobs)])
                link.getresponse().read()
                time.sleep(pause / 1e3 * (1 + k % 3))
        except (http.client.HTTPException, OSError):
            pass  # the server has ended

    threads = [threading.Thread(target=upload, args=(i,)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


@job(outside=uploaders, threads=True, data=CPU + " lock_bound", demand="no_demand",
     host="host_bound", beside="host_bound", rest=LOOP)
def serve_jpeg(s):
    """A threaded HTTP server; request threads decode uploads, the main thread tags what came."""
    import http.server
    import numpy as np
    import torch
    import torchvision
    from PIL import Image
    clients, pause = s.one("clients", 3, 6, 12, 24), s.one("pause_ms", 0, 0, 0, 50)
    longest, side = 16, 224
    d = Device(s)
    net = torchvision.models.resnet50().to(d.dev, torch.bfloat16).eval()
    net = net.to(memory_format=torch.channels_last)
    ready, changed = np.zeros((side, side, 3), np.uint8), threading.Condition()
    waiting, state = collections.deque(), {"inside": 0}

    class Tags(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def log_message(self, *_):
            pass

        def do_POST(self):
            with changed:
                state["inside"] += 1
                changed.notify()
            x = None
            try:
                blob = self.rfile.read(int(self.headers["Content-Length"]))
                if s.fix:
                    x = ready
                else:
                    with Image.open(io.BytesIO(blob)) as f:
                        x = np.array(f.convert("RGB").resize((side, side), Image.BICUBIC))
            finally:
                answer = concurrent.futures.Future()
                with changed:
                    state["inside"] -= 1
                    if x is not None:
                        waiting.append((x, answer))
                    changed.notify()
            text = json.dumps(answer.result()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 64

    def tag(x):
        with d.work(), torch.inference_mode():
            x = torch.from_numpy(x).to(d.dev).permute(0, 3, 1, 2).to(torch.bfloat16) / 255
            best = net(x.contiguous(memory_format=torch.channels_last)).float().topk(5)
        return best.indices.tolist()

    for k in range(1, longest + 1):  # each size of a batch has its own choice of kernels
        tag(np.stack([ready] * k))
    server = Server(("127.0.0.1", 0), Tags)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    s.tell("port", "%d %d %d" % (server.server_address[1], clients, 0 if s.fix else pause))
    warm = Warm(s)
    while True:
        with changed:
            while not waiting:
                with s.during("data" if state["inside"] else "demand"):
                    changed.wait()
            items = [waiting.popleft() for _ in range(min(longest, len(waiting)))]
        warm.step()
        with s.during("host"):
            x = np.stack([x for x, _ in items])
        tags = tag(x)
        with s.during("host"):
            for (_, answer), t in zip(items, tags):
                answer.set_result({"tags": t})


@job(ckpt="checkpoint_stall", rest=LOOP)
def orbax_scan(s):
    """JAX; a call scans over some steps on data made on the device; Orbax saves now and then."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import shutil
    import jax
    import jax.numpy as jnp
    import optax
    import orbax.checkpoint as ocp
    width, layers, batch = 2048, s.int("layers", 2, 8), s.one("batch", 2048, 4096)
    inner, every = s.int("scan", 6, 12), s.int("every", 15, 60)
    keys = jax.random.split(jax.random.PRNGKey(s.random.randrange(1 << 30)), layers + 2)
    params = {"layer%d" % i: {"w": jax.random.normal(keys[i], (width, width)) * 0.02,
                              "b": jnp.zeros(width)} for i in range(layers)}
    teacher, opt = jax.random.normal(keys[-2], (width, width)) * 0.02, optax.adam(1e-4)
    state = opt.init(params)

    def cost(p, x, y):
        h = x
        for i in range(layers):
            w = p["layer%d" % i]["w"].astype(jnp.bfloat16)
            h = h + jax.nn.gelu(h @ w + p["layer%d" % i]["b"].astype(jnp.bfloat16))
        return jnp.mean(jnp.square(h.astype(jnp.float32) - y))

    def step(carry, key):
        p, state = carry
        x = jax.random.normal(key, (batch, width), jnp.bfloat16)
        y = jnp.tanh(x @ teacher.astype(jnp.bfloat16)).astype(jnp.float32)
        value, grads = jax.value_and_grad(cost)(p, x, y)
        change, state = opt.update(grads, state, p)
        return (optax.apply_updates(p, change), state), value

    @jax.jit
    def many(p, state, key):
        key, mine = jax.random.split(key)
        (p, state), values = jax.lax.scan(step, (p, state), jax.random.split(mine, inner))
        return p, state, key, values.mean()

    saver, folder, last = ocp.StandardCheckpointer(), os.path.abspath(s.path("saved")), None
    os.makedirs(folder, exist_ok=True)
    key, d, warm = keys[-1], Waits(s), Warm(s)
    for i in itertools.count(1):
        warm.step()
        with d.work():
            params, state, key, value = many(params, state, key)
            value.block_until_ready()
        if i % every == 0 and not s.fix:
            with s.during("ckpt"):
                path = os.path.join(folder, str(i))
                saver.save(path, params)
                saver.wait_until_finished()
                if last:
                    shutil.rmtree(last, ignore_errors=True)
                last = path


@job(data=CPU, beside="ipc_bound", rest=LOOP)
def shared_ring(s):
    """Home-made processes decode pictures into slots of a shared-memory ring; the loop takes."""
    from multiprocessing import shared_memory
    import cv2
    import numpy as np
    cv2.setNumThreads(0)
    batch, side, many = s.one("batch", 24, 32, 48), 192, s.one("workers", 2, 3, 4, 6, 8)
    slots, fork = many + 2, multiprocessing.get_context("fork")
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    files = []
    for _ in range(64):
        x = cv2.resize(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8), (640, 480),
                       interpolation=cv2.INTER_CUBIC)
        files.append(cv2.imencode(".jpg", x)[1])
    size = batch * side * side * 3
    memory = shared_memory.SharedMemory(create=True, size=slots * size)
    ring = np.ndarray((slots, batch, side, side, 3), np.uint8, buffer=memory.buf)
    ring[:] = 127
    free, full = fork.SimpleQueue(), fork.SimpleQueue()

    def fill(me):
        draw = np.random.default_rng(me)
        while True:
            slot = free.get()
            for k in range(batch):
                if s.fix:
                    break
                x = cv2.imdecode(files[int(draw.integers(len(files)))], cv2.IMREAD_COLOR)
                top, left = int(draw.integers(0, 120)), int(draw.integers(0, 160))
                x = cv2.resize(x[top:top + 360, left:left + 480], (side, side),
                               interpolation=cv2.INTER_AREA)
                if draw.random() < 0.5:
                    x = cv2.flip(x, 1)
                ring[slot, k] = cv2.cvtColor(x, cv2.COLOR_BGR2RGB)
            full.put(slot)

    for i in range(many):
        child(fill, i)
    memory.unlink()  # who has it mapped keeps it
    for slot in range(slots):
        free.put(slot)
    import torch
    import torchvision
    d = Device(s)
    net = torchvision.models.resnet34(num_classes=50).to(d.dev)
    net = net.to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    y = torch.randint(0, 50, (batch,), device=d.dev)
    warm = Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            slot = full.get()
        with d.work():
            x = torch.from_numpy(ring[slot]).to(d.dev).permute(0, 3, 1, 2).float().div_(255)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        loss.item()
        free.put(slot)


DECODER = """
import io, json, sys
from PIL import Image
path, side, same = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "same"
with open(path + ".json") as f:
    sizes = json.load(f)
def decode(blob):
    with Image.open(io.BytesIO(blob)) as f:
        return f.convert("RGB").resize((side, side), Image.BILINEAR).tobytes()
raw = None
while True:
    with open(path, "rb") as f:
        for size in sizes:
            blob = f.read(size)
            if raw is None or not same:
                raw = decode(blob)
            sys.stdout.buffer.write(raw)
"""


@job(data=CPU, threads=True, beside="ipc_bound", rest=LOOP)
def pipe_frames(s):
    """A decoder runs as a program of its own, its raw frames come by a pipe to a network."""
    import numpy as np
    from PIL import Image
    shape, side = s.one("source", (320, 240), (640, 480), (1280, 720)), 224
    path, sizes = s.path("film.mjpeg"), []
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    with open(path, "wb") as f:
        for _ in range(48):
            x, blob = rng.integers(0, 255, (18, 32, 3), dtype=np.uint8), io.BytesIO()
            Image.fromarray(x).resize(shape, Image.BICUBIC).save(blob, "JPEG", quality=88)
            sizes.append(f.write(blob.getvalue()))
    with open(path + ".json", "w", encoding="ascii") as f:
        json.dump(sizes, f)
    me = os.getpid()
    decoder = subprocess.Popen(
        [sys.executable, "-c", DECODER, path, str(side), "same" if s.fix else "all"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=lambda: mortal(me))
    import torch
    import torchvision
    d, frames = Device(s), s.one("frames", 8, 16, 32)
    net = torchvision.models.resnet50(num_classes=64).to(d.dev, torch.bfloat16).eval()
    net = net.to(memory_format=torch.channels_last)
    chunk = torch.empty(frames, side, side, 3, dtype=torch.uint8).pin_memory()
    view = memoryview(chunk.numpy()).cast("B")
    last, warm = None, Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            at = 0
            while at < len(view):
                got = decoder.stdout.readinto(view[at:])
                if not got:
                    raise RuntimeError("the decoder has ended")
                at += got
        with d.work(), torch.inference_mode():
            x = chunk.to(d.dev, non_blocking=True).permute(0, 3, 1, 2).to(torch.bfloat16) / 255
            h = net(x.contiguous(memory_format=torch.channels_last)).float()
            h = torch.nn.functional.normalize(h, dim=1)
            cuts = (h[1:] * h[:-1]).sum(1)
            last = h[-1] if last is None else 0.9 * last + 0.1 * h[-1]
        cuts.tolist()


@job(host="host_bound", data="main_thread_loading", beside="launch_bound", rest=LOOP)
def equinox_flocks(s):
    """Q-learning in Equinox; flocks of bodies are simulated in numpy between act and update."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    many, bodies, parts = s.one("flocks", 64, 128, 256), 16, s.int("parts", 1, 6)
    batch, room = s.one("batch", 2048, 4096, 8192), 40000
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    pushes = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)], np.float32)

    class Flocks:
        def __init__(self):
            self.x = rng.random((many, bodies, 2), dtype=np.float32)
            self.v = np.zeros_like(self.x)

        def look(self):
            return np.concatenate([self.x, self.v], 2).reshape(many, -1)

        def step(self, actions):
            for _ in range(parts):
                r = self.x[:, None] - self.x[:, :, None]
                far = (r * r).sum(3, keepdims=True) + 0.05
                self.v = 0.98 * self.v + 1e-3 * (r / far - 0.1 * r / far ** 2).sum(2)
                self.v[:, 0] += 0.01 * pushes[actions]
                self.x = (self.x + 0.05 * self.v).astype(np.float32) % 1
            spread = self.x.std(1).sum(1)
            done = spread < 0.05
            self.x[done] = rng.random((int(done.sum()), bodies, 2), dtype=np.float32)
            return self.look(), -spread, done

    wide = 4 * bodies
    net = eqx.nn.MLP(wide, len(pushes), 1024, s.int("depth", 2, 4), key=jax.random.PRNGKey(0))
    opt = optax.adam(1e-4)
    state = opt.init(eqx.filter(net, eqx.is_array))

    @eqx.filter_jit
    def act(net, seen):
        return jnp.argmax(jax.vmap(net)(seen), 1)

    @eqx.filter_value_and_grad
    def cost(net, old, a, r, new, done):
        q = jax.vmap(net)(old)[jnp.arange(old.shape[0]), a]
        best = jax.lax.stop_gradient(jax.vmap(net)(new).max(1))
        return jnp.mean(optax.huber_loss(q, r + 0.97 * best * (1 - done)))

    @eqx.filter_jit
    def update(net, state, *items):
        value, grads = cost(net, *items)
        change, state = opt.update(grads, state)
        return eqx.apply_updates(net, change), state, value

    kept = [np.zeros((room, wide), np.float32), np.zeros(room, np.int32),
            np.zeros(room, np.float32), np.zeros((room, wide), np.float32),
            np.zeros(room, np.float32)]
    world, count = Flocks(), 0
    seen = world.look()
    d, warm = Waits(s), Warm(s)
    while True:
        warm.step()
        with d.work():
            actions = np.array(act(net, jnp.asarray(seen)))
        with s.during("host"):
            lost = rng.random(many) < 0.1
            actions[lost] = rng.integers(0, len(pushes), int(lost.sum()))
            if s.fix:
                new, reward, done = seen, np.zeros(many), np.zeros(many, bool)
            else:
                new, reward, done = world.step(actions)
            at = (count + np.arange(many)) % room
            for to, part in zip(kept, (seen, actions, reward, new, done)):
                to[at] = part
            count, seen = count + many, new
        with s.during("data"):
            at = rng.integers(0, min(count, room), batch)
            items = [to[at] for to in kept]
        with d.work():
            net, state, value = update(net, state, *[jnp.asarray(v) for v in items])
            value.block_until_ready()


@job(host="host_bound", rest=LOOP)
def stop_words(s):
    """A GPT in a CUDA graph writes; after each token its texts are put together and searched."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers
    import torch
    parts = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrs"]
    words = sorted({p + q for p in parts[:100] for q in parts[::7]})[:4000]
    tok = tokenizers.Tokenizer(tokenizers.models.WordLevel(
        vocab={w: i for i, w in enumerate(words)}, unk_token=words[0]))
    stops = re.compile("|".join(re.escape(" ".join(s.random.choices(words, k=3)))
                                for _ in range(s.one("stops", 4, 16, 48))), re.IGNORECASE)
    d, n = Device(s), torch.nn
    width, heads, length, prompt = 1024, 16, 512, 16
    batch, layers, many = s.one("batch", 8, 16, 32, 64), s.int("layers", 8, 16), 200
    net = n.ModuleDict({
        "embed": n.Embedding(len(words), width), "place": n.Embedding(length, width),
        "first": n.ModuleList([n.LayerNorm(width) for _ in range(layers)]),
        "qkv": n.ModuleList([n.Linear(width, 3 * width) for _ in range(layers)]),
        "out": n.ModuleList([n.Linear(width, width) for _ in range(layers)]),
        "mlp": n.ModuleList([n.Sequential(
            n.LayerNorm(width), n.Linear(width, 4 * width), n.GELU(),
            n.Linear(4 * width, width)) for _ in range(layers)]),
        "last": n.LayerNorm(width), "head": n.Linear(width, len(words))})
    net = net.to(d.dev).half().eval()
    room = [torch.zeros(2, batch, heads, length, width // heads, device=d.dev, dtype=torch.half)
            for _ in range(layers)]
    ids = torch.zeros(batch, 1, dtype=torch.long, device=d.dev)
    at, span = torch.zeros(1, dtype=torch.long, device=d.dev), torch.arange(length, device=d.dev)

    def token():
        h = net["embed"](ids) + net["place"](at)
        seen = (span <= at).view(1, 1, 1, length)
        for i, (keys, values) in enumerate(room):
            qkv = net["qkv"][i](net["first"][i](h)).view(batch, 1, 3, heads, width // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            keys.index_copy_(2, at, k)
            values.index_copy_(2, at, v)
            a = n.functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
            h = h + net["out"][i](a.transpose(1, 2).reshape(batch, 1, width))
            h = h + net["mlp"][i](h)
        ids.copy_(net["head"](net["last"](h)).argmax(-1))
        at.add_(1)

    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                token()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            token()
    prompts = torch.randint(0, len(words), (32, prompt, batch, 1), device=d.dev)
    warm = Warm(s, 40)
    for k in itertools.count():
        with d.work():
            at.zero_()
            for t in prompts[k % len(prompts)]:
                ids.copy_(t)
                graph.replay()
        texts, done = [[] for _ in range(batch)], [False] * batch
        for left in reversed(range(many)):
            warm.step()
            with d.work():
                graph.replay()
            new = ids.view(-1).tolist()
            with s.during("host"):
                for i, t in enumerate(new):
                    if done[i]:
                        continue
                    texts[i].append(t)
                    if left and s.fix:  # it is enough to search at the end
                        continue
                    done[i] = bool(stops.search(tok.decode(texts[i])))
            if all(done):
                break


@job(data=CPU, threads=True, beside="main_thread_loading", rest=LOOP)
def zarr_crops(s):
    """TensorStore reads crops of a zipped Zarr volume two batches ahead; a denoiser learns."""
    import numpy as np
    import tensorstore as ts
    import torch
    planes, side, crop = 40, 1024, 192
    batch, limit = s.one("batch", 16, 24, 32), s.one("limit", 1, 2, 4, 10)
    spec = {"driver": "zarr", "kvstore": {"driver": "file",
                                          "path": os.path.abspath(s.path("cells.zarr"))}}
    made = ts.open({**spec, "metadata": {
        "shape": [planes, side, side], "chunks": [1, 256, 256], "dtype": "<u2",
        "compressor": {"id": "zlib", "level": 1}}}, create=True, delete_existing=True).result()
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    noise = rng.integers(0, 64, (side, side), dtype=np.uint16)
    made[...].write(np.stack([np.roll(noise, 37 * i, 0) + np.uint16(i) for i in range(planes)])
                    ).result()
    store = ts.open({**spec, "context": {
        "data_copy_concurrency": {"limit": limit}, "file_io_concurrency": {"limit": 8},
        "cache_pool": {"total_bytes_limit": (1 << 30) if s.fix else 0}}}, open=True).result()
    if s.fix:
        store[...].read().result()

    def ask():
        found = []
        for _ in range(batch):
            z = int(rng.integers(planes))
            y, x = (int(v) for v in rng.integers(0, side - crop, 2))
            found.append(store[z, y:y + crop, x:x + crop].read())
        return found

    d, n = Device(s), torch.nn
    wide, layers = 64, []
    for _ in range(s.int("layers", 4, 8)):
        layers += [n.Conv2d(wide, wide, 3, padding=1), n.BatchNorm2d(wide), n.ReLU()]
    net = n.Sequential(n.Conv2d(1, wide, 3, padding=1), n.ReLU(), *layers,
                       n.Conv2d(wide, 1, 3, padding=1)).to(d.dev)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    ahead, warm = collections.deque(ask() for _ in range(2)), Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            x = np.stack([f.result() for f in ahead.popleft()]).astype(np.float32) / 64
            ahead.append(ask())
        with d.work():
            x = torch.from_numpy(x[:, None]).to(d.dev)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                out = net(x + 0.3 * torch.randn_like(x))
            loss = n.functional.mse_loss(out.float(), x)
            loss.backward()
            opt.step()
        loss.item()
