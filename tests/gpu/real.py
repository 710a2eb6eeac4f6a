# SPDX-License-Identifier: BSD-2-Clause
"""Training scripts on a real GPU, written as their frameworks' users write them.

They register with the strange jobs (tests/strangers/stranger.py) and are judged as those
are. The device's truth is CUDA events around each step's work on it: gaps between the
kernels of one step count as busy, so these jobs' steps are not bound by launches.
"""
import contextlib
import io
import os
import signal
import time

from stranger import CPU, job, now

WARM = 8
SPANS = 20000


class Device:
    """CUDA events of PyTorch, on the clock of the log."""

    def __init__(self, s):
        import torch
        self.torch, self.s, self.spans = torch, s, []
        self.dev = torch.device("cuda")
        torch.zeros(1, device=self.dev)
        torch.cuda.synchronize()
        self.base = torch.cuda.Event(enable_timing=True)
        self.base.record()
        self.base.synchronize()
        self.base_ns = now()
        s.at_end = self.write

    def begin(self):
        e = self.torch.cuda.Event(enable_timing=True)
        e.record()
        self.spans.append([e, None])

    def end(self):
        e = self.torch.cuda.Event(enable_timing=True)
        e.record()
        self.spans[-1][1] = e
        del self.spans[:-SPANS]

    @contextlib.contextmanager
    def work(self):
        self.begin()
        yield
        self.end()

    def write(self):
        """As the simulated device's log."""
        self.torch.cuda.synchronize()
        with open(os.environ["PT_SIM_LOG"].replace("%p", str(os.getpid())), "w",
                  encoding="ascii") as f:
            for a, b in self.spans:
                if b is not None:
                    f.write("kernel,0,0,%d,%d,0,0,step\n" % tuple(
                        self.base_ns + int(self.base.elapsed_time(e) * 1e6) for e in (a, b)))


class Warm:
    """Holds the job at the tracer's door after some steps."""

    def __init__(self, s, steps=WARM):
        self.s, self.left = s, steps

    def step(self):
        if self.left == 0:
            signal.signal(signal.SIGTERM, self.s.end)  # a framework may have taken it
            self.s.go()
        self.left -= 1
        self.s.mark()


def timed(s, batches):
    """A loader whose next() is a row of the log."""
    it = iter(batches)
    while True:
        try:
            with s.during("data"):
                x = next(it)
        except StopIteration:
            return
        yield x


def burn(ms):
    end = time.thread_time_ns() + int(ms * 1e6)
    x = 1
    while time.thread_time_ns() < end:
        for i in range(100):
            x = (x * 31 + i) & 0xffff
    return x


def pictures(s, n):
    """A folder of JPEG files."""
    import numpy as np
    from PIL import Image
    folder = s.path("pictures")
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    paths = []
    for i in range(n):
        small = rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)
        path = os.path.join(folder, "%d.jpg" % i)
        Image.fromarray(small).resize((640, 480), Image.BICUBIC).save(path, quality=90)
        paths.append(path)
    return paths


@job(data=CPU, rest="sync_bound launch_bound host_bound")
def jpeg_folder(s):
    """ResNet-18 with mixed precision on a folder of JPEG files, two workers."""
    import torch
    import torchvision
    from PIL import Image
    paths = pictures(s, 64)
    v = torchvision.transforms
    change = v.Compose([v.RandomResizedCrop(224), v.RandomHorizontalFlip(), v.ToTensor(),
                        v.Normalize([0.5] * 3, [0.25] * 3)])

    class Folder(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 7

        def __getitem__(self, i):
            with Image.open(paths[i % len(paths)]) as f:
                return change(f.convert("RGB")), i % 1000

    d = Device(s)
    net = torchvision.models.resnet18().to(d.dev).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    loader = torch.utils.data.DataLoader(
        Folder(), batch_size=s.one("batch", 32, 64), shuffle=False, pin_memory=True,
        num_workers=14 if s.fix else s.int("workers", 1, 3))
    warm = Warm(s)
    for x, y in timed(s, loader):
        warm.step()
        with d.work():
            x = x.to(d.dev, non_blocking=True, memory_format=torch.channels_last)
            y = y.to(d.dev, non_blocking=True)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        loss.item()


@job(data="main_thread_loading", beside="launch_bound",
     rest="sync_bound launch_bound host_bound")
def hf_trainer(s):
    """Transformers' Trainer; the collate function tokenises, and there are no workers."""
    import accelerate.data_loader as al
    import torch
    import transformers as tf
    words = ["%s%d" % (w, i) for i in range(400) for w in ("alpha", "beta", "gamma", "de")]
    vocab = {w: i for i, w in enumerate(words)}
    length, batch = s.int("length", 128, 384), s.one("batch", 8, 16)

    class Texts(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 6

        def __getitem__(self, i):
            return " ".join(words[(i * 7 + k * 13) % len(words)] for k in range(length))

    def collate(texts):
        ids = [[vocab[w.strip().lower()] for w in t.split(" ") for _ in range(1 if s.fix else 3)]
               for t in texts]
        ids = torch.tensor([x[:length] for x in ids])
        return {"input_ids": ids, "labels": ids}

    d, warm = Device(s), Warm(s)
    plain = al.DataLoaderShard.__iter__

    def shard(self):
        return timed(s, plain(self))
    al.DataLoaderShard.__iter__ = shard

    class Steps(tf.TrainerCallback):
        def on_step_begin(self, *_, **__):
            warm.step()
            d.begin()

        def on_step_end(self, *_, **__):
            d.end()
            torch.cuda.synchronize()

    net = tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=2000, n_positions=512, n_embd=256,
                                           n_layer=2, n_head=4))
    args = tf.TrainingArguments(
        output_dir=s.path("out"), max_steps=10 ** 6, per_device_train_batch_size=batch,
        report_to="none", logging_strategy="no", save_strategy="no", disable_tqdm=True,
        remove_unused_columns=False, dataloader_num_workers=0)
    # Trainer writes to standard output, which is the harness's
    with contextlib.redirect_stderr(io.StringIO()):
        tf.Trainer(model=net, args=args, train_dataset=Texts(), data_collator=collate,
                   callbacks=[Steps()]).train()


@job(data="slow_item", rest="sync_bound launch_bound host_bound")
def lightning_slow_item(s):
    """Lightning, four workers; one record in some takes a hundred times the usual."""
    import lightning.pytorch as pl
    import torch
    usual, rare = s.ms("item_ms", 0.1, 0.2), s.int("one_in", 150, 300)
    slow = usual if s.fix else usual * s.int("factor", 800, 1500)

    class Records(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 7

        def __getitem__(self, i):
            burn(slow if i % rare == rare - 1 else usual)
            return torch.full((3, 64, 64), i % 7 / 7)

    class Loader(torch.utils.data.DataLoader):
        def __iter__(self):
            return timed(s, super().__iter__())

    d, warm = Device(s), Warm(s)

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            n = torch.nn
            self.net = n.Sequential(n.Conv2d(3, 64, 3), n.ReLU(), n.Conv2d(64, 64, 3), n.ReLU(),
                                    n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(64, 10))

        def training_step(self, x, _):
            return self.net(x).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

        def on_train_batch_start(self, *_):
            warm.step()
            d.begin()

        def on_train_batch_end(self, *_):
            d.end()
            torch.cuda.synchronize()

    trainer = pl.Trainer(max_steps=10 ** 6, accelerator="gpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False, default_root_dir=s.folder)
    trainer.fit(Net(), Loader(Records(), batch_size=16, num_workers=4, pin_memory=True,
                              persistent_workers=True))


@job(data="main_thread_loading", rest="sync_bound launch_bound host_bound")
def jax_numpy(s):
    """JAX; batches are cut and augmented in numpy between the steps."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp
    import numpy as np
    rng = np.random.default_rng(1)
    images = rng.random((256, 96, 96, 3), dtype=np.float32)
    batch = s.one("batch", 32, 64)
    w = {"a": jnp.asarray(rng.random((96 * 96 * 3, 1024), dtype=np.float32) * 0.01),
         "b": jnp.asarray(rng.random((1024, 10), dtype=np.float32) * 0.01)}

    @jax.jit
    def step(w, x, y):
        def loss(w):
            h = jnp.maximum(x.reshape(x.shape[0], -1) @ w["a"], 0) @ w["b"]
            return -jnp.mean(jax.nn.log_softmax(h)[jnp.arange(x.shape[0]), y])
        value, g = jax.value_and_grad(loss)(w)
        return jax.tree.map(lambda p, q: p - 0.01 * q, w, g), value

    def make():
        if s.fix:
            return images[:batch], np.zeros(batch, dtype=np.int32)
        at = rng.integers(0, len(images), batch)
        x = np.stack([np.roll(images[i], int(rng.integers(-8, 8)), axis=1)[:, ::-1] for i in at])
        return x * rng.random((batch, 1, 1, 1), dtype=np.float32), (at % 10).astype(np.int32)

    # without PyTorch there are no events here: the call that waits stands for the device
    spans = []

    def write():
        with open(os.environ["PT_SIM_LOG"].replace("%p", str(os.getpid())), "w",
                  encoding="ascii") as f:
            for a, b in spans:
                f.write("kernel,0,0,%d,%d,0,0,step\n" % (a, b))
    s.at_end = write
    warm = Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            x, y = make()
        t = now()
        w, value = step(w, x, y)
        value.block_until_ready()
        spans.append((t, now()))


@job(rest="sync_bound launch_bound host_bound balanced")
def graph_replay(s):
    """A network in a CUDA graph on data that lies on the device."""
    import torch
    d = Device(s)
    width, depth = 2048, s.int("depth", 20, 60)
    n = torch.nn
    net = n.Sequential(*[m for _ in range(depth) for m in (n.Linear(width, width), n.ReLU())])
    net = net.to(d.dev).half()
    x = torch.randn(4096, width, device=d.dev, dtype=torch.half)
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = net(x)
    warm = Warm(s, 40)
    while True:
        warm.step()
        with d.work():
            graph.replay()
        y[0, 0].item()


@job(ckpt="checkpoint_stall", rest="sync_bound launch_bound host_bound")
def checkpoints_torch(s):
    """The weights are saved with torch.save and flushed every few dozen steps."""
    import torch
    d = Device(s)
    n = torch.nn
    net = n.Sequential(*[m for _ in range(12) for m in (n.Linear(2048, 2048), n.ReLU())]).to(d.dev)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    x = torch.randn(8192, 2048, device=d.dev)
    every, path = s.int("every", 20, 40), s.path("weights.pt")
    warm, i = Warm(s), 0
    while True:
        warm.step()
        with d.work():
            opt.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
        loss.item()
        i += 1
        if i % every == 0 and not s.fix:
            with s.during("ckpt"):
                with open(path + ".part", "wb") as f:
                    torch.save(net.state_dict(), f)
                    f.flush()
                    os.fsync(f.fileno())
                os.rename(path + ".part", path)


@job(copy="transfer_bound", rest="sync_bound launch_bound host_bound transfer_bound")
def pageable_volumes(s):
    """Volumes of some hundred megabytes, copied from memory that is not page-locked."""
    import torch
    d = Device(s)
    host = torch.randn(s.int("mib", 100, 300) << 18)
    if s.fix:
        host = host.pin_memory()
    a = torch.randn(4096, 4096, device=d.dev)
    warm = Warm(s)
    while True:
        warm.step()
        with s.during("copy"):
            x = host.to(d.dev)
            torch.cuda.synchronize()
        with d.work():
            for _ in range(2):
                b = a @ a
        (b[0, 0] + x[0]).item()


@job(data="lock_bound cpu_bound", threads=True, rest="sync_bound launch_bound host_bound")
def thread_tokens(s):
    """A thread of the job parses in Python and puts batches on a queue; the loop waits."""
    import queue
    import threading
    import torch
    d = Device(s)
    q, cost = queue.Queue(4), s.ms("cost_ms", 20, 60)

    def fill():
        while True:
            burn(0.1 if s.fix else cost)
            q.put(torch.zeros(64, 1024))
    threading.Thread(target=fill, daemon=True).start()
    net = torch.nn.Linear(1024, 4096).to(d.dev)
    warm = Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            x = q.get()
        with d.work():
            y = net(x.to(d.dev)).square().mean()
        y.item()


@job(rest="launch_bound sync_bound host_bound")
def triton_launches(s):
    """Some hundred small Triton kernels a step, and nothing else."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)
    Device(s)
    x = torch.zeros(1 << 12, device="cuda")
    n = s.int("kernels", 200, 400)
    warm = Warm(s)
    while True:
        warm.step()
        for _ in range(n):
            add[(4,)](x, 1 << 12, BLOCK=1024)
        x[0].item()
