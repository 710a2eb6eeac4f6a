# SPDX-License-Identifier: BSD-2-Clause
"""Ten more scripts on a real GPU, beside those of real.py and real_more.py, judged as those are.

The labels are older than the first trace of any of them.
"""
import http.server
import itertools
import multiprocessing
import os
import threading
import time
import zlib

from real import Device, Warm, timed
from stranger import CPU, job

LOOP = "sync_bound launch_bound host_bound"


def fit(s, net, lose, data, batch=None, workers=0):
    """The plain loop over a dataset by workers, or over what makes batches itself."""
    import torch
    d = Device(s)
    net.to(d.dev)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    if workers:
        data = torch.utils.data.DataLoader(data, batch_size=batch, num_workers=workers,
                                           pin_memory=True, persistent_workers=True)
    warm = Warm(s)
    for items in timed(s, data):
        warm.step()
        with d.work():
            items = [x.to(d.dev, non_blocking=True) for x in items]
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                loss = lose(*items)
            loss.backward()
            opt.step()
        loss.item()


@job(data="main_thread_loading", beside="launch_bound", rest=LOOP)
def embed_texts(s):
    """A BERT makes embeddings of passages; the loop tokenises and pads each batch of them."""
    # as many set it to be rid of the warning; else further threads would tokenise
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers
    import torch
    import transformers as tf
    parts = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrs"]
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]"] + parts + ["##" + p for p in parts])}
    tok = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    tok.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tok.enable_truncation(max_length=256)
    tok.enable_padding(pad_id=0, pad_token="[PAD]")
    words = ["".join(s.random.choices(parts, k=s.random.randint(1, 4))) for _ in range(5000)]
    longest, batch = s.int("words", 200, 500), s.one("batch", 32, 64, 96)
    texts = [" ".join(s.random.choices(words, k=s.random.randint(longest // 2, longest)))
             for _ in range(400)]

    def tokenise(at):
        found = tok.encode_batch([texts[(at + k) % len(texts)] for k in range(batch)])
        return torch.tensor([e.ids for e in found]), torch.tensor([e.attention_mask for e in found])

    d = Device(s)
    net = tf.BertModel(tf.BertConfig(
        vocab_size=len(vocab), hidden_size=384, num_hidden_layers=s.int("layers", 4, 6),
        num_attention_heads=6, intermediate_size=1536)).to(d.dev, torch.bfloat16).eval()
    ready, warm = tokenise(0), Warm(s)
    for at in itertools.count(0, batch):
        warm.step()
        with s.during("data"):
            ids, mask = ready if s.fix else tokenise(at)
        with d.work(), torch.inference_mode():
            ids, mask = ids.to(d.dev), mask.to(d.dev)
            h = net(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0].float()
            h = torch.nn.functional.normalize(h, dim=1)
        h.cpu()


@job(data=CPU, rest=LOOP)
def wav_spectrograms(s):
    """Workers read WAV files, resample them and make masked mel spectrograms with torchaudio."""
    import wave
    import numpy as np
    import torch
    import torchaudio
    import torchvision
    seconds, paths = s.int("seconds", 4, 7), []
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    for i in range(32):
        paths.append(s.path("%d.wav" % i))
        with wave.open(paths[-1], "wb") as f:
            f.setparams((1, 2, 44100, 0, "NONE", "not compressed"))
            f.writeframes(rng.integers(-9000, 9000, 44100 * seconds, dtype=np.int16).tobytes())
    t = torchaudio.transforms
    change = torch.nn.Sequential(
        t.Resample(44100, 16000),
        t.MelSpectrogram(sample_rate=16000, n_fft=1024, hop_length=256, n_mels=64),
        t.AmplitudeToDB(), t.FrequencyMasking(12), t.TimeMasking(40))
    ready = torch.randn(1, 64, 16000 * seconds // 256 + 1)

    class Sounds(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 7

        def __getitem__(self, i):
            if s.fix:
                return ready, i % 35
            with wave.open(paths[i % len(paths)], "rb") as f:
                raw = np.frombuffer(f.readframes(f.getnframes()), np.int16)
            return change(torch.from_numpy(raw.astype(np.float32) / 32768)[None]), i % 35

    net = torchvision.models.resnet18(num_classes=35)
    fit(s, net, lambda x, y: torch.nn.functional.cross_entropy(net(x.expand(-1, 3, -1, -1)), y),
        Sounds(), s.one("batch", 32, 48), s.int("workers", 2, 4))


@job(data=CPU, rest=LOOP)
def parquet_clicks(s):
    """Click prediction; workers walk the row groups of a Parquet file and hash its strings."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    rows, groups, buckets, path = 4096, 8, 20000, s.path("clicks.parquet")
    kinds = ["c%d" % i for i in range(26)]
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    pool = np.array(["%08x" % (i * 2654435761 % (1 << 32)) for i in range(5000)], dtype=object)
    table = {k: pa.array(pool[rng.integers(0, len(pool), rows * groups)], type=pa.string())
             for k in kinds}
    table["y"] = pa.array(rng.integers(0, 2, rows * groups))
    pq.write_table(pa.table(table), path, row_group_size=rows)

    def read(f, group):
        t = f.read_row_group(group, use_threads=False)
        ids = [[zlib.crc32(v.encode()) % buckets + i * buckets for v in t.column(k).to_pylist()]
               for i, k in enumerate(kinds)]
        return torch.tensor(ids).t().contiguous(), torch.tensor(t.column("y").to_numpy()).float()

    class Clicks(torch.utils.data.IterableDataset):
        def __iter__(self):
            me, f = torch.utils.data.get_worker_info(), pq.ParquetFile(path)
            ready = read(f, 0)
            for k in itertools.count(me.id, me.num_workers):
                yield ready if s.fix else read(f, k % groups)

    n = torch.nn
    net = n.Sequential(n.EmbeddingBag(26 * buckets, 64), n.ReLU(), n.Linear(64, 1))
    fit(s, net, lambda ids, y: n.functional.binary_cross_entropy_with_logits(
        net(ids).view(-1).float(), y), Clicks(), workers=s.int("workers", 2, 4))


SHARD = (64, 3, 64, 64)


def shard_server(s):
    """An object store; all who ask share a line of so many megabytes a second."""
    rate, line, part = s.int("mb_per_s", 10, 25) * 1e6, threading.Lock(), os.urandom(32 << 10)
    parts = 64 * 3 * 64 * 64 // len(part)

    class Shards(http.server.BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(parts * len(part)))
            self.end_headers()
            for _ in range(parts):
                if self.path != "/near":
                    with line:
                        time.sleep(len(part) / rate)
                self.wfile.write(part)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shards)
    s.tell("port", server.server_address[1])
    server.serve_forever()


@job(outside=shard_server, data="network_bound", rest=LOOP)
def http_shards(s):
    """A dataset is streamed: each worker gets shards with requests, over one narrow line."""
    import numpy as np
    import requests
    import torch
    import torchvision
    url = "http://127.0.0.1:%s/%s" % (s.told("port"), "near" if s.fix else "far")

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            session = requests.Session()
            session.trust_env = False  # the store is on this host: no proxy
            for i in itertools.count():
                answer = session.get(url, timeout=60)
                answer.raise_for_status()
                x = np.frombuffer(answer.content, np.uint8).reshape(SHARD)
                yield torch.from_numpy(x.copy()), torch.full((SHARD[0],), i % 10)

    net = torchvision.models.resnet18(num_classes=10)
    fit(s, net, lambda x, y: torch.nn.functional.cross_entropy(net(x.float() / 255), y),
        Stream(), workers=s.int("workers", 2, 5))


@job(data="lock_bound", rest=LOOP)
def flock_cache(s):
    """Workers share a cache of packed pictures; who unpacks one holds the cache's lock file."""
    import fcntl
    import numpy as np
    import torch
    import torchvision
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    paths, lock = [s.path("%d.z" % i) for i in range(16)], s.path("cache.lock")
    for path in paths:
        with open(path, "wb") as f:
            f.write(zlib.compress(rng.integers(0, 16, (3, 512, 512), dtype=np.uint8), 1))

    class Cached(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 7

        def __getitem__(self, i):
            # opened for each item: one that the workers had in common would lock nobody out
            with open(lock, "ab") as held:
                if not s.fix:
                    fcntl.flock(held, fcntl.LOCK_EX)
                with open(paths[i % len(paths)], "rb") as f:
                    x = np.frombuffer(zlib.decompress(f.read()), np.uint8).reshape(3, 512, 512)
            top, left = i * 37 % 288, i * 53 % 288
            return torch.from_numpy(x[:, top:top + 224, left:left + 224].copy()), i % 100

    net = torchvision.models.resnet18(num_classes=100)
    fit(s, net, lambda x, y: torch.nn.functional.cross_entropy(net(x.float() / 16), y),
        Cached(), s.one("batch", 16, 24, 32), s.int("workers", 4, 6))


@job(host="host_bound", rest=LOOP)
def tensorboard_images(s):
    """An autoencoder on resident data; a grid of pictures and histograms go to TensorBoard."""
    import torch
    from torch.utils.tensorboard import SummaryWriter
    d, n = Device(s), torch.nn
    net = n.Sequential(
        n.Conv2d(3, 64, 4, 2, 1), n.ReLU(), n.Conv2d(64, 128, 4, 2, 1), n.ReLU(),
        n.ConvTranspose2d(128, 64, 4, 2, 1), n.ReLU(), n.ConvTranspose2d(64, 3, 4, 2, 1),
        n.Sigmoid()).to(d.dev)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    images = torch.rand(2048, 3, 128, 128, device=d.dev)
    every, board = s.int("every", 10, 20), SummaryWriter(log_dir=s.path("board"))
    warm = Warm(s, 24)
    for i in itertools.count(1):
        warm.step()
        with d.work():
            x = images[torch.randint(0, len(images), (64,), device=d.dev)]
            out = net(x)
            loss = n.functional.mse_loss(out, x)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        value = loss.item()
        if i % every:
            continue
        with s.during("host"):
            board.add_scalar("loss", value, i)
            if not s.fix:
                board.add_images("pictures", torch.cat([x[:32], out.detach()[:32]]).cpu(), i)
                for name, p in net.named_parameters():
                    board.add_histogram(name, p.detach().cpu(), i)


def volumes(q, mib, seed, small):
    """A process that scales volumes, and sends each through the queue as a whole."""
    import numpy as np
    rng = np.random.default_rng(seed)
    x = rng.random((mib, 1, 64, 64, 64), dtype=np.float32)
    while True:
        q.put(None if small else x * np.float32(rng.random()))


@job(data="ipc_bound", copy="transfer_bound", rest=LOOP)
def pickled_volumes(s):
    """Processes send batches of some dozen megabytes through a multiprocessing.Queue."""
    mib, fork = s.int("mib", 24, 64), multiprocessing.get_context("fork")
    q = fork.Queue(2)
    for i in range(s.int("makers", 2, 3)):
        fork.Process(target=volumes, args=(q, mib, i, s.fix), daemon=True).start()
    import torch
    ready = torch.rand(mib, 1, 64, 64, 64)
    d, n = Device(s), torch.nn
    net = n.Sequential(n.Conv3d(1, 16, 3, 2, 1), n.ReLU(), n.Conv3d(16, 32, 3, 2, 1), n.ReLU(),
                       n.AdaptiveAvgPool3d(1), n.Flatten(), n.Linear(32, 2)).to(d.dev)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    warm = Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            x = q.get()
            x = ready if x is None else torch.from_numpy(x)
        with s.during("copy"):
            x = x.to(d.dev)
            torch.cuda.synchronize()
        with d.work():
            opt.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
        loss.item()


@job(data="main_thread_loading", rest=LOOP)
def nano_gpt(s):
    """A GPT that keeps the device busy: crops of a memory map are cut while it computes."""
    import numpy as np
    import torch
    d, path, words, length, width = Device(s), s.path("train.bin"), 8192, 1024, 768
    np.random.default_rng(1).integers(0, words, 4 << 20, dtype=np.uint16).tofile(path)
    batch, many, n = s.one("batch", 24, 32, 40), s.int("accumulate", 2, 4), torch.nn
    layers = [n.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.0, batch_first=True,
                                        norm_first=True) for _ in range(s.int("layers", 8, 12))]
    embed, head = n.Embedding(words, width), n.Linear(width, words)
    net = n.ModuleList([embed, *layers, head]).to(d.dev)
    mask = n.Transformer.generate_square_subsequent_mask(length).to(d.dev)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)

    def crops():
        data = np.memmap(path, dtype=np.uint16, mode="r")
        at = np.random.randint(0, len(data) - length - 1, batch)
        x = torch.from_numpy(np.stack([data[i:i + length + 1].astype(np.int64) for i in at]))
        x = x.pin_memory().to(d.dev, non_blocking=True)
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()

    warm, (x, y) = Warm(s, 5), crops()
    for k in itertools.count():
        if k % many == 0:
            warm.step()
        else:
            s.mark("micro")
        d.begin()
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            h = embed(x)
            for layer in layers:
                h = layer(h, src_mask=mask, is_causal=True)
            out = head(h).flatten(0, 1)
        loss = n.functional.cross_entropy(out.float(), y.flatten()) / many
        with s.during("data"):  # the device has the forward pass before it
            x, y = crops()
        loss.backward()
        if k % many == many - 1:
            n.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
        d.end()
        loss.item()


@job(data="main_thread_loading", beside="launch_bound", rest=LOOP)
def pandas_chunks(s):
    """The loop reads a CSV file chunk by chunk with pandas, and makes the features itself."""
    import numpy as np
    import pandas as pd
    import torch
    path, chunk = s.path("sales.csv"), s.one("chunk", 1024, 2048, 4096)
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    with open(path, "w", encoding="ascii") as f:
        f.write("when,shop,note,price,pieces,paid\n")
        for v in rng.integers(0, 1 << 30, 8 * 4096).tolist():
            f.write("2024-%02d-%02d %02d:%02d:00,shop%d,%s,%.2f,%d,%d\n" % (
                v % 12 + 1, v % 28 + 1, v % 24, v % 60, v % 40, "gift box " * (v % 3 + 1),
                v % 9973 / 7, v % 11, v % 5000))

    def features(t):
        when = pd.to_datetime(t["when"], format="%Y-%m-%d %H:%M:%S")
        x = pd.DataFrame({
            "day": when.dt.dayofweek, "hour": when.dt.hour, "shop": t["shop"].str[4:].astype(int),
            "gift": t["note"].str.strip().str.upper().str.count("GIFT"),
            "price": np.log1p(t["price"]), "rank": t["price"].rank(pct=True),
            "usual": t.groupby("shop")["price"].transform("mean"),
            "last": t["paid"].rolling(7, min_periods=1).mean(), "pieces": t["pieces"]})
        return (torch.tensor(v.to_numpy(dtype=np.float32)) for v in (x, t["paid"]))

    def chunks():
        ready = list(features(next(iter(pd.read_csv(path, chunksize=chunk)))))
        while s.fix:
            yield ready
        while True:
            for t in pd.read_csv(path, chunksize=chunk):
                yield list(features(t))

    n = torch.nn
    net = n.Sequential(n.Linear(9, 2048), n.ReLU(), n.Linear(2048, 1))
    fit(s, net, lambda x, paid: n.functional.l1_loss(net(x).view(-1).float(), paid), chunks())


@job(host="host_bound", copy="transfer_bound", rest=LOOP)
def offload_adam(s):
    """Adam and its state stay on the host; gradients come down, and weights go up."""
    import torch
    d, n = Device(s), torch.nn
    net = n.Sequential(*[m for _ in range(s.int("layers", 6, 12))
                         for m in (n.Linear(2048, 2048), n.ReLU())]).to(d.dev)
    x, there = torch.randn(8192, 2048, device=d.dev), list(net.parameters())
    here = there if s.fix else [p.detach().cpu().requires_grad_() for p in there]
    opt = torch.optim.AdamW(here, lr=1e-4)
    warm = Warm(s)
    while True:
        warm.step()
        with d.work():
            net.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
        loss.item()
        with s.during("copy"):
            for p, q in zip(there, here):
                q.grad = p.grad.to(q.device)
        with s.during("host"):
            opt.step()
        with s.during("copy"), torch.no_grad():
            for p, q in zip(there, here):
                p.copy_(q)
            torch.cuda.synchronize()
