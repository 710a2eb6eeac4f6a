# SPDX-License-Identifier: BSD-2-Clause
"""Further training scripts on a real GPU, beside those of real.py, judged as those are.

What has no events of PyTorch is timed by calls that wait for the device.
"""
import collections
import concurrent.futures
import contextlib
import multiprocessing
import os
import queue
import threading

from real import SPANS, Device, Warm, pictures, timed
from stranger import CPU, job, now

LOOP = "sync_bound launch_bound host_bound"


class Waits:
    """The device's log of a library without PyTorch: each span ends with a wait for it."""

    def __init__(self, s):
        self.spans = collections.deque(maxlen=SPANS)
        s.at_end = self.write

    @contextlib.contextmanager
    def work(self):
        begin = now()
        yield
        self.spans.append((begin, now()))

    def write(self):
        with open(os.environ["PT_SIM_LOG"].replace("%p", str(os.getpid())), "w",
                  encoding="ascii") as f:
            for a, b in self.spans:
                f.write("kernel,0,0,%d,%d,0,0,step\n" % (a, b))


@job(data=CPU, rest=LOOP)
def timm_augment(s):
    """A timm model; workers decode pictures and put them through RandAugment and erasing."""
    import timm
    import torch
    from PIL import Image
    from timm.data import create_transform
    paths = pictures(s, 96)
    change = create_transform(input_size=(3, 192, 192), is_training=True, re_prob=0.25,
                              auto_augment="rand-m9-mstd0.5-inc1", re_mode="pixel")
    ready = torch.randn(3, 192, 192)

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 7

        def __getitem__(self, i):
            if s.fix:
                return ready, i % 100
            with Image.open(paths[i % len(paths)]) as f:
                return change(f.convert("RGB")), i % 100

    d = Device(s)
    net = timm.create_model("resnet18", pretrained=False, num_classes=100)
    net = net.to(d.dev).to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
    loader = torch.utils.data.DataLoader(
        Pictures(), batch_size=s.one("batch", 24, 32, 48), num_workers=s.int("workers", 2, 5),
        pin_memory=True, persistent_workers=True, drop_last=True)
    warm = Warm(s)
    for x, y in timed(s, loader):
        warm.step()
        with d.work():
            x = x.to(d.dev, non_blocking=True, memory_format=torch.channels_last)
            y = y.to(d.dev, non_blocking=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        loss.item()


@job(data="main_thread_loading", beside="launch_bound", rest=LOOP)
def pyg_molecules(s):
    """A graph network; the loop's own thread makes small graphs and joins them to a batch."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GINEConv, global_mean_pool
    made = torch.Generator().manual_seed(s.random.randrange(1 << 30))

    def molecule():
        n = int(torch.randint(12, 40, (1,), generator=made))
        return (torch.randn(n, 16, generator=made), torch.randn(n, 3, generator=made),
                torch.randint(0, n, (2, 3 * n), generator=made))
    raw = [molecule() for _ in range(2000)]

    class Molecules(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 6

        def __getitem__(self, i):
            x, pos, edges = raw[i % len(raw)]
            far = (pos[edges[0]] - pos[edges[1]]).norm(dim=1, keepdim=True)
            return Data(x=x, edge_index=edges, edge_attr=far, y=pos.mean().view(1))

    class Net(torch.nn.Module):
        def __init__(self, width=64):
            super().__init__()
            n = torch.nn
            self.first = n.Linear(16, width)
            self.convs = n.ModuleList([GINEConv(n.Sequential(
                n.Linear(width, width), n.ReLU(), n.Linear(width, width)), edge_dim=1)
                for _ in range(3)])
            self.last = n.Linear(width, 1)

        def forward(self, b):
            h = self.first(b.x)
            for conv in self.convs:
                h = conv(h, b.edge_index, b.edge_attr).relu()
            return self.last(global_mean_pool(h, b.batch, b.num_graphs)).view(-1)

    loader = DataLoader(Molecules(), batch_size=s.one("batch", 128, 256, 384), num_workers=0)
    if s.fix:
        some = iter(loader)
        batches = [next(some) for _ in range(4)]
        loader = (batches[i % 4] for i in range(10 ** 7))
    d = Device(s)
    net = Net().to(d.dev)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    warm = Warm(s)
    for batch in timed(s, loader):
        warm.step()
        with d.work():
            b = batch.to(d.dev)
            opt.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(net(b), b.y)
            loss.backward()
            opt.step()
        loss.item()


@job(rest="launch_bound sync_bound", beside="host_bound")
def llama_generate(s):
    """A small Llama writes token by token with generate(); each token is many tiny kernels."""
    import torch
    import transformers as tf
    config = tf.LlamaConfig(
        vocab_size=4096, hidden_size=512, intermediate_size=1408,
        num_hidden_layers=s.int("layers", 4, 8), num_attention_heads=8, num_key_value_heads=8,
        max_position_embeddings=1024)
    Device(s)  # no events: the device is busy for moments only
    net = tf.LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
    many, batch = s.int("tokens", 16, 40), s.one("batch", 1, 4, 8)

    class Tokens(tf.LogitsProcessor):
        def __call__(self, input_ids, scores):
            s.mark("micro")
            return scores

    prompts = torch.randint(3, 4096, (64, batch, 32))
    warm, i = Warm(s, 5), 0
    while True:
        warm.step()
        ids = prompts[i % len(prompts)].to("cuda")
        i += 1
        if s.fix:  # the text is known: all of its tokens at once
            with torch.inference_mode():
                ids = torch.cat([ids, ids, ids], 1)[:, :32 + many]
                net(input_ids=ids, use_cache=False).logits[:, -1].argmax(-1).tolist()
            continue
        out = net.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=many,
            min_new_tokens=many, do_sample=False, pad_token_id=0,
            logits_processor=tf.LogitsProcessorList([Tokens()]))
        out[:, 32:].tolist()


@job(rest=LOOP)
def compiled_resident(s):
    """A compiled network on data that lies on the device; the loss is read every ten steps."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch
    d = Device(s)
    n = torch.nn
    width, batch = 1024, s.one("batch", 8192, 16384)

    class Block(n.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.act = n.LayerNorm(width), n.GELU()
            self.up, self.down = n.Linear(width, 4 * width), n.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(self.act(self.up(self.norm(x))))

    net = n.Sequential(*[Block() for _ in range(s.int("blocks", 3, 5))], n.Linear(width, 10))
    net = net.to(d.dev)
    fast = torch.compile(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x = torch.randn(60000, width, device=d.dev)
    y = torch.randint(0, 10, (60000,), device=d.dev)
    warm, i = Warm(s, 20), 0
    while True:
        warm.step()
        with d.work():
            at = torch.randint(0, len(x), (batch,), device=d.dev)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                out = fast(x[at])
            loss = torch.nn.functional.cross_entropy(out.float(), y[at])
            loss.backward()
            opt.step()
        i += 1
        if i % 10 == 0:
            loss.item()


@job(data=CPU, rest=LOOP)
def hdf5_gzip(s):
    """Workers read single spectrograms from an HDF5 file whose chunks are gzipped."""
    import h5py
    import numpy as np
    import torch
    import torchvision
    path, many = s.path("spectrograms.h5"), 768
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    with h5py.File(path, "w") as f:
        x = f.create_dataset("x", (many, 128, 256), dtype="i2", chunks=(8, 128, 256),
                             compression="gzip", compression_opts=4)
        for at in range(0, many, 64):
            x[at:at + 64] = rng.integers(0, 50, (64, 128, 256), dtype=np.int16)
        f.create_dataset("y", data=rng.integers(0, 50, many))

    class Spectrograms(torch.utils.data.Dataset):
        def __init__(self):
            self.x = self.y = None

        def open(self):
            f = h5py.File(path, "r")
            self.x, self.y = f["x"], f["y"]
            if s.fix:
                self.x, self.y = self.x[:], self.y[:]

        def __len__(self):
            return 10 ** 7

        def __getitem__(self, i):
            if self.x is None:
                self.open()
            i = i * 389 % many
            x = np.log1p(self.x[i].astype(np.float32))
            return torch.from_numpy(x[None]), int(self.y[i])

    d = Device(s)
    net = torchvision.models.resnet18(num_classes=50)
    net.conv1 = torch.nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False)
    net = net.to(d.dev)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loader = torch.utils.data.DataLoader(
        Spectrograms(), batch_size=s.one("batch", 32, 48), num_workers=s.int("workers", 2, 4),
        pin_memory=True, persistent_workers=True)
    warm = Warm(s)
    for x, y in timed(s, loader):
        warm.step()
        with d.work():
            x, y = x.to(d.dev, non_blocking=True), y.to(d.dev, non_blocking=True)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        loss.item()


@job(copy="transfer_bound", rest=LOOP + " transfer_bound")
def cupy_frames(s):
    """CuPy corrects stacks of camera frames; they come from and go back to usual memory."""
    import cupy as cp
    import numpy as np
    rng = np.random.default_rng(1)
    shape = (s.int("frames", 16, 40), 1024, 2048)
    host, out = np.empty(shape, np.int16), np.empty(shape, np.float32)
    if s.fix:
        import cupyx
        host, out = cupyx.empty_pinned(shape, np.int16), cupyx.empty_pinned(shape, np.float32)
    host[:] = rng.integers(0, 4096, shape[1:], dtype=np.int16)
    out[:] = 0
    dark = cp.asarray(rng.random(shape[1:], dtype=np.float32) * 100)
    gain = cp.asarray(rng.random(shape[1:], dtype=np.float32) + 0.5)
    frames = cp.empty(shape, cp.int16)
    device, d, warm = cp.cuda.Device(), Waits(s), Warm(s)
    while True:
        warm.step()
        with s.during("copy"):
            frames.set(host)
            device.synchronize()
        with d.work():
            y = cp.maximum((frames - dark) * gain, 0)
            device.synchronize()
        with s.during("copy"):
            y.get(out=out)


@job(data=CPU, threads=True, rest=LOOP)
def opencv_clips(s):
    """A pool of threads decodes and scales the frames of clips with OpenCV; the loop waits."""
    import cv2
    import numpy as np
    import torch
    import torchvision
    cv2.setNumThreads(0)
    rng = np.random.default_rng(s.random.randrange(1 << 30))

    def frame():
        x = cv2.resize(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8), (640, 480),
                       interpolation=cv2.INTER_CUBIC)
        return cv2.imencode(".jpg", x)[1]
    films, length = [[frame() for _ in range(32)] for _ in range(4)], 16

    def clip(n):
        film, frames = films[n % len(films)], []
        for k in range(length):
            x = cv2.imdecode(film[(n + k) % len(film)], cv2.IMREAD_COLOR)
            x = cv2.resize(x, (149, 112), interpolation=cv2.INTER_AREA)[:, 18:130]
            frames.append(cv2.cvtColor(x, cv2.COLOR_BGR2RGB))
        return np.stack(frames)

    ready = clip(0)
    pool = concurrent.futures.ThreadPoolExecutor(s.int("threads", 2, 4))
    batch, count, ahead = s.int("clips", 3, 6), 0, collections.deque()

    def obtain():
        nonlocal count
        if s.fix:
            return torch.from_numpy(np.stack([ready] * batch))
        while len(ahead) < 3 * batch:
            ahead.append(pool.submit(clip, count))
            count += 1
        return torch.from_numpy(np.stack([ahead.popleft().result() for _ in range(batch)]))

    d = Device(s)
    net = torchvision.models.video.r3d_18(num_classes=20).to(d.dev)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    warm = Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            x = obtain()
        with d.work():
            x = x.to(d.dev).permute(0, 4, 1, 2, 3).float().div_(255)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                loss = net(x).square().mean()
            loss.backward()
            opt.step()
        loss.item()


@job(host="host_bound", rest=LOOP)
def numpy_metrics(s):
    """Every few dozen steps a validation, whose AUC and confusion matrix numpy computes."""
    import numpy as np
    import torch
    d = Device(s)
    n = torch.nn
    classes, every = s.int("classes", 20, 40), s.int("every", 20, 35)
    net = n.Sequential(n.Linear(512, 2048), n.ReLU(), n.Linear(2048, 2048), n.ReLU(),
                       n.Linear(2048, 2048), n.ReLU(), n.Linear(2048, classes)).to(d.dev)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    x = torch.randn(60000, 512, device=d.dev)
    y = torch.randint(0, classes, (60000,), device=d.dev)
    truth = y.cpu().numpy()

    def metrics(scores):
        guess = scores.argmax(1)
        seen = np.bincount(truth * classes + guess, minlength=classes ** 2)
        seen, areas = seen.reshape(classes, classes), []
        for c in range(classes):
            ranks = np.empty(len(truth))
            ranks[np.argsort(scores[:, c], kind="stable")] = np.arange(1, len(truth) + 1)
            mine = truth == c
            hits = mine.sum()
            areas.append((ranks[mine].sum() - hits * (hits + 1) / 2)
                         / max(hits * (len(truth) - hits), 1))
        return seen.trace() / seen.sum(), np.mean(areas)

    warm, i = Warm(s, 40), 0
    while True:
        warm.step()
        with d.work():
            at = torch.randint(0, len(x), (8192,), device=d.dev)
            opt.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(net(x[at]), y[at])
            loss.backward()
            opt.step()
        loss.item()
        i += 1
        if i % every == 0:
            with d.work(), torch.no_grad():
                out = net(x)
                right = (out.argmax(1) == y).float().mean()
            if s.fix:
                right.item()
                continue
            scores = out.cpu().numpy()
            with s.during("host"):
                metrics(scores)


@job(data="main_thread_loading", beside="launch_bound", rest=LOOP)
def accelerate_padding(s):
    """Accelerate adds up gradients; the collate function tokenises and pads, no workers."""
    import accelerate
    import tokenizers
    import torch
    words = ["%s%d" % (w, i) for i in range(1000) for w in ("ka", "lo", "mi", "nu")]
    vocab = {w: i + 2 for i, w in enumerate(words)}
    vocab.update({"[pad]": 0, "[unk]": 1})
    tok = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab=vocab, unk_token="[unk]"))
    tok.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    longest = s.int("words", 500, 1200)
    texts = [" ".join(s.random.choices(words, k=s.random.randint(longest // 3, longest)))
             for _ in range(300)]

    class Texts(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 6

        def __getitem__(self, i):
            return texts[i % len(texts)], i % 4

    def collate(items):
        ids = [torch.tensor(tok.encode(text).ids[:256]) for text, _ in items]
        ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        return {"ids": ids, "mask": ids == 0, "labels": torch.tensor([y for _, y in items])}

    batch, many = s.one("batch", 16, 32), s.int("accumulate", 2, 4)
    ready = collate([(texts[i], i % 4) for i in range(batch)])

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            n = torch.nn
            self.embed = n.Embedding(len(vocab), 256)
            layer = n.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
            self.body = n.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = n.Linear(256, 4)

        def forward(self, ids, mask):
            h = self.body(self.embed(ids), src_key_padding_mask=mask)
            return self.head(h.mean(1))

    d = Device(s)
    net = Net()
    acc = accelerate.Accelerator(gradient_accumulation_steps=many, mixed_precision="bf16")
    net, opt, loader = acc.prepare(
        net, torch.optim.AdamW(net.parameters(), lr=1e-4),
        torch.utils.data.DataLoader(Texts(), batch_size=batch, num_workers=0,
                                    collate_fn=(lambda _: ready) if s.fix else collate))
    warm = Warm(s)
    for i, b in enumerate(timed(s, loader)):
        if i % many == 0:
            warm.step()
        else:
            s.mark("micro")
        with d.work(), acc.accumulate(net):
            loss = torch.nn.functional.cross_entropy(net(b["ids"], b["mask"]), b["labels"])
            acc.backward(loss)
            opt.step()
            opt.zero_grad()
        loss.item()


@job(data="loader_restart", rest=LOOP)
def cifar_epochs(s):
    """Epochs of a dozen batches, and the loader starts its workers anew for each."""
    import numpy as np
    import torch
    import torchvision
    batch, count = 256, s.int("batches", 8, 16)
    images = np.random.default_rng(1).integers(0, 255, (batch * count, 32, 32, 3), dtype=np.uint8)

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, i):
            x = images[i]
            return torch.from_numpy(x[:, ::-1].copy() if i & 1 else x), i % 10

    d = Device(s)
    net = torchvision.models.resnet18(num_classes=10).to(d.dev)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    loader = torch.utils.data.DataLoader(
        Images(), batch_size=batch, shuffle=True, num_workers=s.int("workers", 4, 6),
        pin_memory=True, persistent_workers=s.fix)
    warm = Warm(s, 20)
    while True:
        with s.during("data"):
            epoch = iter(loader)
        for x, y in timed(s, epoch):
            warm.step()
            with d.work():
                x = x.to(d.dev, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)
                y = y.to(d.dev, non_blocking=True)
                opt.zero_grad(set_to_none=True)
                with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                    loss = torch.nn.functional.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
            loss.item()


def planets(link, parts, seed):
    """An environment: bodies that attract each other, seen from above."""
    import numpy as np
    rng = np.random.default_rng(seed)
    x, v = rng.random((32, 2)), np.zeros((32, 2))
    while True:
        action = link.recv()
        for _ in range(parts):
            r = x[None] - x[:, None]
            pull = r / ((r * r).sum(2, keepdims=True) + 0.05)
            v = 0.99 * v + 1e-4 * pull.sum(1)
            v[0] += 1e-4 * (action - 1.5)
            x = (x + 0.01 * v) % 1
        seen = np.zeros((84, 84), np.uint8)
        at = (x * 83.99).astype(int)
        seen[at[:, 0], at[:, 1]] = 255
        link.send((seen, float(x[0, 0])))


@job(data=CPU, beside="launch_bound", rest=LOOP)
def actor_critic(s):
    """Actions go to environments in processes, which simulate; the loop awaits what they see."""
    import numpy as np
    many, parts, links = s.int("environments", 3, 6), s.int("parts", 80, 300), []
    for i in range(many):
        mine, theirs = multiprocessing.Pipe()
        multiprocessing.get_context("fork").Process(
            target=planets, args=(theirs, 1 if s.fix else parts, i), daemon=True).start()
        links.append(mine)
    import torch
    d = Device(s)
    n = torch.nn
    body = n.Sequential(n.Conv2d(4, 32, 8, 4), n.ReLU(), n.Conv2d(32, 64, 4, 2), n.ReLU(),
                        n.Conv2d(64, 64, 3), n.ReLU(), n.Flatten(), n.Linear(3136, 512), n.ReLU())
    policy, value = n.Linear(512, 4), n.Linear(512, 1)
    net = n.ModuleList([body, policy, value]).to(d.dev)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    seen = np.zeros((many, 4, 84, 84), np.uint8)
    warm, horizon, kept = Warm(s, 20), s.int("horizon", 16, 32), []
    while True:
        warm.step()
        with d.work(), torch.no_grad():
            x = torch.from_numpy(seen).to(d.dev).float() / 255
            actions = torch.distributions.Categorical(logits=policy(body(x))).sample()
        chosen = actions.cpu().numpy()
        with s.during("data"):
            for link, action in zip(links, chosen):
                link.send(int(action))
            frames, rewards = zip(*[link.recv() for link in links])
            seen = np.concatenate([seen[:, 1:], np.stack(frames)[:, None]], 1)
        kept.append((x, actions, rewards))
        if len(kept) == horizon:
            with d.work():
                x, a = torch.cat([k[0] for k in kept]), torch.cat([k[1] for k in kept])
                r = torch.tensor([k[2] for k in kept], device=d.dev).view(-1)
                h = body(x)
                gain = r - value(h).view(-1)
                chance = torch.distributions.Categorical(logits=policy(h)).log_prob(a)
                loss = gain.square().mean() - (chance * gain.detach()).mean()
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
            kept.clear()


@job(data=CPU, threads=True, rest=LOOP)
def flax_prefetch(s):
    """Flax; one thread cuts and scales pictures in numpy and puts batches on the device."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    rng = np.random.default_rng(1)
    images = rng.integers(0, 255, (256, 256, 256, 3), dtype=np.uint8)
    batch = s.one("batch", 16, 24, 32)

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = x.reshape((x.shape[0], -1))
            for _ in range(2):
                x = nn.relu(nn.Dense(1024)(x))
            return nn.Dense(10)(x)

    net, opt = Net(), optax.adam(1e-4)
    params = net.init(jax.random.PRNGKey(0), jnp.zeros((1, 128, 128, 3)))
    state = opt.init(params)

    @jax.jit
    def step(params, state, x, y):
        def cost(p):
            return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()
        value, grads = jax.value_and_grad(cost)(params)
        change, state = opt.update(grads, state, params)
        return optax.apply_updates(params, change), state, value

    def make():
        x = np.empty((batch, 128, 128, 3), np.float32)
        at = rng.integers(0, len(images), batch)
        for k, i in enumerate(at):
            top, left = rng.integers(0, 128, 2)
            cut = images[i, top:top + 128, left:left + 128].astype(np.float32) / 255
            x[k] = (cut[:, ::-1] - cut.mean((0, 1))) / (cut.std((0, 1)) + 1e-3)
        return x, (at % 10).astype(np.int32)

    q, ready = queue.Queue(2), jax.device_put(make())

    def fill():
        while True:
            q.put(ready if s.fix else jax.device_put(make()))
    threading.Thread(target=fill, daemon=True).start()
    d, warm = Waits(s), Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            x, y = q.get()
        with d.work():
            params, state, value = step(params, state, x, y)
            value.block_until_ready()
