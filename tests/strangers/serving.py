# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that answer somebody, generate, or play."""
import concurrent.futures
import http.client
import http.server
import multiprocessing
import os
import queue
import random
import socket
import struct
import threading
import time
import zlib

import numpy as np

from stranger import CPU, job, parse


def asking(j):
    """Clients of rag_server: each sends texts at random times."""
    rate = j.ms("rate", 4, 60)
    port = int(j.told("port"))
    j.told("go")

    def client(n):
        chance = random.Random(n)
        link = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            time.sleep(chance.expovariate(rate / 6))
            link.request("POST", "/embed", b"what is a page fault? " * chance.randint(1, 40))
            link.getresponse().read()
    threads = [threading.Thread(target=client, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    threads[0].join()


@job(outside=asking, demand="no_demand", host="host_bound sync_bound",
     rest="sync_bound host_bound launch_bound")
def rag_server(j):
    """Embeddings over HTTP: a thread per connection, a queue, dynamic batches."""
    gpu = j.gpu(j.ms("gpu_ms", 5, 60))
    most, patience = j.int("batch", 4, 32), j.ms("patience_ms", 1, 15) / 1e3
    texts = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            text = self.rfile.read(int(self.headers["Content-Length"]))
            done = concurrent.futures.Future()
            texts.put((text, done))
            body = done.result()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    j.tell("port", server.server_address[1])
    j.go()
    while True:
        with j.during("demand"):
            batch, end = [texts.get()], time.monotonic() + patience
            try:
                while len(batch) < most:
                    batch.append(texts.get(timeout=max(end - time.monotonic(), 1e-4)))
            except queue.Empty:
                pass
        j.mark()
        with j.during("host"):
            ids = np.zeros((len(batch), 512), np.int64)
            for row, (text, _) in zip(ids, batch):
                words = [hash(w) % 30000 for w in text.split()][:512]
                row[:len(words)] = words
        j.train(gpu, ids)
        for _, done in batch:
            done.set_result(b"\0" * 3072)


def seldom(j):
    link = socket.socket(socket.AF_UNIX)
    pause = j.ms("pause_s", 0.4, 2.5)
    while True:
        try:
            link.connect(j.path("sock"))
            break
        except OSError:
            time.sleep(0.02)
    j.told("go")
    while True:
        link.sendall(struct.pack("<I", j.random.randint(1, 4000)))
        link.recv(64)
        time.sleep(j.random.expovariate(1 / pause))


@job(outside=seldom, demand="no_demand insufficient_data", host="host_bound")
def idle_server(j):
    """A model server with next to no requests: accept, read a length, answer."""
    gpu = j.gpu(j.ms("gpu_ms", 20, 120))
    door = socket.socket(socket.AF_UNIX)
    door.bind(j.path("sock"))
    door.listen()
    link = door.accept()[0]
    j.go()
    while True:
        with j.during("demand"):
            ask = link.recv(4)
        j.mark()
        for _ in range(1 + struct.unpack("<I", ask)[0] // 1000):
            j.mark("micro")
            j.train(gpu, np.zeros(4096, np.float32))
        link.sendall(b"ok")


@job(host="host_bound sync_bound", rest="sync_bound launch_bound host_bound")
def llm_decode(j):
    """Decoding, token by token: the next token's id comes back by .item()."""
    launches = j.int("launches", 30, 250)
    gpu = j.gpu(j.ms("token_ms", 4, 40), launches=launches)
    sample_ms, out = j.ms("sample_ms", 0.3, 8), open(os.devnull, "w", encoding="utf-8")
    prompts = [j.random.randint(8, 200) for _ in range(1000)]
    j.go()
    for length in prompts:
        j.train(gpu, np.zeros(length, np.int64), item=False)  # prefill
        for _ in range(length):
            j.mark()
            j.train(gpu)  # ends with .item()
            with j.during("host"):
                parse(sample_ms)  # top-p over a list, detokenise, stop words
                out.write("token ")


@job(host="host_bound sync_bound checkpoint_stall", rest="sync_bound host_bound launch_bound")
def diffusion(j):
    """Images from noise: K denoising steps each, then a PNG is written."""
    gpu, k = j.gpu(j.ms("denoise_ms", 3, 30)), j.int("denoise_steps", 8, 50)
    side = j.int("side", 128, 768)
    noise = np.random.default_rng(1).integers(0, 40, (side, side, 3), np.uint8)
    j.go()
    for n in range(100000):
        j.mark()
        for _ in range(k):
            j.mark("micro")
            j.train(gpu, noise[:64] if n == 0 else None, item=False)
        gpu.loss_item()
        with j.during("host"):
            png = zlib.compress(noise.tobytes(), 6)
            with open(j.path("image-%d.png" % (n % 50)), "wb") as f:
                f.write(png)


def act(out, weights, cost, seed):
    chance = random.Random(seed)
    while True:
        if weights.poll():
            weights.recv()
        parse(cost * chance.uniform(0.5, 1.5))  # the environment, in Python
        out.put(np.zeros((64, 84), np.float32))


@job(data=CPU, host="host_bound", rest="sync_bound host_bound")
def rl_actors(j):
    """Actors play in processes; the learner trains on what they bring."""
    gpu, cost = j.gpu(j.ms("gpu_ms", 5, 60)), j.ms("episode_ms", 4, 40)
    actors, wants = j.int("actors", 1, 4), j.int("episodes", 1, 6)
    every = j.int("broadcast_every", 3, 20)
    out, pipes = multiprocessing.Queue(maxsize=2 * wants), []
    for n in range(actors):
        theirs, mine = multiprocessing.Pipe(duplex=False)
        multiprocessing.Process(target=act, args=(out, theirs, cost, n), daemon=True).start()
        pipes.append(mine)
    replay = []
    j.go()
    for n in range(10**6):
        j.mark()
        with j.during("data"):
            for _ in range(wants):
                replay.append(out.get())
        del replay[:-512]
        batch = np.stack([replay[j.random.randrange(len(replay))] for _ in range(32)])
        j.train(gpu, batch)
        if n % every == 0:
            with j.during("host"):
                for p in pipes:
                    p.send(b"\0" * 20000)


def chatting(j):
    """Reads a stream of tokens, thinks, asks again."""
    think, port = j.ms("think_s", 0.1, 1.5), int(j.told("port"))
    link = socket.create_connection(("127.0.0.1", port))
    j.told("go")
    while True:
        link.sendall(b"tell me more\n")
        while link.recv(1) != b"\n":
            pass
        time.sleep(j.random.expovariate(1 / think))


@job(outside=chatting, demand="no_demand", host="host_bound sync_bound",
     rest="sync_bound launch_bound host_bound")
def chat_server(j):
    """One conversation at a time; each token is sent as soon as it is there."""
    gpu, most = j.gpu(j.ms("token_ms", 4, 30)), j.int("tokens", 5, 60)
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen()
    j.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    lines = link.makefile("rb")
    j.go()
    while True:
        with j.during("demand"):
            prompt = lines.readline()
        j.mark()
        for n in range(j.random.randint(1, most)):
            j.mark("micro")
            j.train(gpu, np.frombuffer(prompt, np.uint8) if n == 0 else None)
            link.sendall(b"x")
        link.sendall(b"\n")
