# SPDX-License-Identifier: BSD-2-Clause
"""Jobs with a habit: nothing is broken, people just write them like that."""
import collections
import concurrent.futures
import contextlib
import gc
import http.client
import http.server
import itertools
import json
import multiprocessing
import os
import pickle
import re
import socket
import threading
import time

import numpy as np

from loaders import torch_data
from loops import feeder
from stranger import BUILD, CPU, decode, job, parse

# ---- habits of loaders


@job(data="cpu_bound cpu_oversubscribed", rest="sync_bound launch_bound")
def filter_late(j):
    """An IterableDataset is sharded by islice after the decoding: each worker decodes all."""
    torch = torch_data()
    cost, early = j.ms("sample_ms", 2, 8), j.fix

    def decoded(n):
        decode(cost)
        return torch.full((3, 64, 64), n & 255, dtype=torch.uint8)

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            me = torch.utils.data.get_worker_info()
            if early:
                return map(decoded, itertools.count(me.id, me.num_workers))
            return itertools.islice(map(decoded, itertools.count()), me.id, None,
                                    me.num_workers)
    gpu = j.gpu(j.ms("gpu_ms", 5, 60))
    batches = iter(torch.utils.data.DataLoader(Stream(), j.int("batch", 4, 16),
                                               num_workers=j.int("workers", 2, 3)))
    j.loop(gpu, lambda: next(batches).numpy())


@job(data="main_thread_loading host_bound", rest="sync_bound launch_bound")
def bucket_sampler(j):
    """A batch sampler sorts a window by length for each batch; the workers have no work."""
    torch = torch_data()
    lengths = [j.random.randint(5, 500) for _ in range(50000)]
    window, many = j.int("window", 1000, 20000), j.int("batch", 16, 64)

    def bucket():
        pool = sorted(j.random.sample(range(len(lengths)), window), key=lengths.__getitem__)
        first = j.random.randrange(window - many)
        return pool[first:first + many]

    class Buckets:
        ready = [bucket() for _ in range(20)]

        def __iter__(self):
            for n in itertools.count():
                yield self.ready[n % 20] if j.fix else bucket()

    class Texts(torch.utils.data.Dataset):
        def __len__(self):
            return len(lengths)

        def __getitem__(self, i):
            return torch.zeros(512, dtype=torch.int64)
    gpu = j.gpu(j.ms("gpu_ms", 5, 60))
    batches = iter(torch.utils.data.DataLoader(Texts(), batch_sampler=Buckets(),
                                               num_workers=j.int("workers", 1, 2)))
    j.loop(gpu, lambda: next(batches).numpy())


@job(data="loader_restart", rest="sync_bound launch_bound")
def short_epochs(j):
    """Few batches an epoch; the workers are not kept, and each reads its index again."""
    torch = torch_data()
    index_ms, cost, per = j.ms("index_ms", 80, 400), j.ms("sample_ms", 0.05, 0.3), j.int(
        "batches", 8, 25)

    class Small(torch.utils.data.Dataset):
        def __len__(self):
            return 8 * per

        def __getitem__(self, i):
            decode(cost)
            return torch.zeros(10000)
    gpu = j.gpu(j.ms("gpu_ms", 8, 30))
    loader = torch.utils.data.DataLoader(
        Small(), 8, shuffle=True, num_workers=j.int("workers", 1, 2),
        worker_init_fn=lambda _: parse(index_ms), persistent_workers=j.fix)
    j.go()
    while True:
        with j.during("data"):
            batches = iter(loader)
        while True:
            with j.during("data"):
                x = next(batches, None)
            if x is None:
                break
            j.mark()
            j.train(gpu, x.numpy())


def images(torch, cost):
    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 10**6

        def __getitem__(self, i):
            decode(cost)
            return torch.zeros((3, 64, 64), dtype=torch.uint8)
    return Images()


@job(data="cpu_oversubscribed", rest="cpu_oversubscribed host_bound sync_bound launch_bound")
def one_core(j):
    """The batch system gave the job one core, and the script starts its usual workers."""
    torch = torch_data()
    ms, many = j.ms("gpu_ms", 10, 60), j.int("batch", 4, 16)
    cost = ms * j.ms("cores_wanted", 0.7, 2.2) / many
    gpu, workers = j.gpu(ms), j.int("workers", 2, 3)
    if not j.fix:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    batches = iter(torch.utils.data.DataLoader(images(torch, cost), many,
                                               num_workers=workers))
    j.loop(gpu, lambda: next(batches).numpy())


def augment(cost):
    parse(cost)
    return np.zeros(60000, np.float32)


@job(data="lock_bound", threads=True, rest="lock_bound")
def augment_threads(j):
    """Augmentation in Python by a pool of threads, a deque of futures ahead."""
    ms = j.ms("gpu_ms", 8, 60)
    gpu, cost = j.gpu(ms), ms * j.ms("augment_share", 0.3, 0.9)
    threads, ahead = j.int("threads", 2, 4), collections.deque()
    pool = (concurrent.futures.ProcessPoolExecutor if j.fix
            else concurrent.futures.ThreadPoolExecutor)(threads)
    list(pool.map(abs, range(threads)))
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            while len(ahead) < 2 * threads:
                ahead.append(pool.submit(augment, cost))
            x = ahead.popleft().result()
        j.train(gpu, x)


@job(data=CPU, rest="sync_bound launch_bound")
def early_stop(j):
    """Two workers keep up with ease; the loss is read each step to stop early."""
    torch = torch_data()
    ms = j.ms("gpu_ms", 30, 100)
    gpu, cost, many = j.gpu(ms), ms * j.ms("load_share", 0.1, 0.4), j.int("batch", 4, 16)
    best, bad, reads = float("inf"), 0, not j.fix
    batches = iter(torch.utils.data.DataLoader(images(torch, cost / many), many,
                                               num_workers=2))
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            x = next(batches)
        j.train(gpu, x.numpy(), item=reads or n % 10 == 0)
        best, bad = min(best, gpu.loss.value), bad + (gpu.loss.value >= best)


# ---- habits of loops


def tracking(j):
    """A server for metrics behind a slow database."""
    late = j.ms("insert_ms", 2, 60)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(late / 1e3)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    j.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=tracking, data=CPU, host="host_bound", rest="sync_bound launch_bound host_bound")
def metrics_http(j):
    """Each step's loss is posted to a tracking server, a connection each."""
    gpu, port = j.gpu(j.ms("gpu_ms", 5, 80)), int(j.told("port"))
    batches, _ = feeder(j.ms("load_ms", 1, 4))
    every = 50 if j.fix else 1
    j.go()
    for n in itertools.count(1):
        j.step(gpu, batches.get)
        if n % every == 0:
            with j.during("host"):
                link = http.client.HTTPConnection("127.0.0.1", port)
                link.request("POST", "/log", json.dumps({"step": n, "loss": gpu.loss.value}))
                link.getresponse().read()
                link.close()


@job(host="host_bound", rest="sync_bound launch_bound host_bound")
def host_adam(j):
    """The optimizer is offloaded: gradients come down, Adam runs in numpy, weights go up."""
    many = j.int("thousands", 50, 1200) * 1000
    gpu = j.gpu(j.ms("gpu_ms", 5, 60), input_bytes=4 * many)
    grad, w, m, v = (np.full(many, 1e-3, np.float32) for _ in range(4))
    x = np.zeros(10000, np.float32)
    j.go()
    while True:
        j.mark()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.backward()
        gpu.check(gpu.lib.cudaMemcpy(grad.ctypes.data, gpu.input, grad.nbytes, 2))
        with j.during("host"):
            if not j.fix:
                m *= 0.9
                m += 0.1 * grad
                v *= 0.999
                v += 0.001 * grad * grad
                w -= 1e-4 * m / (np.sqrt(v) + 1e-8)
        gpu.upload(w.ctypes.data, w.nbytes)


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound host_bound")
def collects(j):
    """gc.collect() every few steps against leaks, with all annotations on the heap."""
    gpu, every = j.gpu(j.ms("gpu_ms", 5, 30)), j.int("every", 2, 8)
    batches, _ = feeder(j.ms("load_ms", 1, 4))
    many = j.int("thousands", 40, 200) * 1000
    j.annotations = [{"id": i, "box": [i, i + 1, i + 2, i + 3], "tags": {"a": [i]}}
                     for i in range(many)]
    gc.collect()
    if j.fix:
        gc.freeze()
    j.go()
    for n in itertools.count(1):
        j.step(gpu, batches.get)
        if n % every == 0:
            with j.during("host"):
                gc.collect()


def save(path, state):
    with open(path, "wb") as f:
        f.write(pickle.dumps(state))


@job(lock="lock_bound", threads=True, rest="sync_bound launch_bound")
def async_save(j):
    """A thread saves the replay buffer "in the background"; pickling keeps the lock."""
    gpu, every = j.gpu(j.ms("gpu_ms", 5, 30)), j.int("every", 3, 10)
    state = [{"step": i, "reward": i / 7, "action": [i, i + 1]}
             for i in range(j.int("thousands", 40, 200) * 1000)]
    x, saving = np.zeros(100000, np.float32), None
    start = multiprocessing.Process if j.fix else threading.Thread
    j.go()
    for n in itertools.count(1):
        j.mark()
        busy = saving and saving.is_alive()
        with j.during("lock") if busy else contextlib.nullcontext():
            j.train(gpu, x)
        if n % every == 0 and not busy:
            saving = start(target=save, args=(j.path("replay.pkl"), state), daemon=True)
            with j.during("lock"):
                saving.start()


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound host_bound")
def embeddings_out(j):
    """Embeddings of a corpus: each batch's are copied down and put on the disk."""
    many = j.int("kib", 100, 4000) << 8
    gpu = j.gpu(j.ms("gpu_ms", 10, 80), input_bytes=4 * many)
    batches, _ = feeder(j.ms("load_ms", 1, 4))
    out, folder = np.empty(many, np.float32), os.path.join(BUILD, "strangers")
    os.makedirs(folder, exist_ok=True)
    j.go()
    for n in itertools.count():
        j.mark()
        with j.during("data"):
            x = batches.get()
        gpu.upload(x.ctypes.data, x.nbytes)
        gpu.forward()
        gpu.check(gpu.lib.cudaMemcpy(out.ctypes.data, gpu.input, out.nbytes, 2))
        if not j.fix:
            with j.during("ckpt"), open(os.path.join(folder, "emb-%d.npy" % (n % 8)), "wb") as f:
                np.save(f, out)
                f.flush()
                os.fsync(f.fileno())


def crawler(j):
    """Sends documents without a pause and reads the scores."""
    line = (" ".join("word%d" % (i % 977) for i in range(200)) + ".\n").encode()
    link = socket.create_connection(("127.0.0.1", int(j.told("port"))))
    j.told("go")

    def send():
        while True:
            link.sendall(line * 20)
    threading.Thread(target=send, daemon=True).start()
    while link.recv(4096):
        pass


@job(outside=crawler, demand="no_demand", data="main_thread_loading host_bound",
     rest="sync_bound launch_bound host_bound")
def score_documents(j):
    """More documents than it can score; it tokenises them between the batches."""
    gpu, many = j.gpu(j.ms("gpu_ms", 5, 60)), j.int("batch", 8, 200)
    word, ids = re.compile(rb"\w+|[^\w\s]"), {}
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen()
    j.tell("port", door.getsockname()[1])
    link = door.accept()[0]
    lines, x = link.makefile("rb"), np.zeros((many, 256), np.int64)
    j.go()
    for n in itertools.count():
        with j.during("demand"):
            documents = [lines.readline() for _ in range(many)]
        j.mark()
        if n == 0 or not j.fix:
            with j.during("data"):
                for row, document in zip(x, documents):
                    found = [ids.setdefault(w, len(ids)) for w in word.findall(document.lower())]
                    row[:len(found[:256])] = found[:256]
        j.train(gpu, x)
        link.sendall(bytes(many))
