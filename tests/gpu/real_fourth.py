# SPDX-License-Identifier: BSD-2-Clause
"""Eight more scripts on a real GPU of the PyTorch and Hugging Face world, judged as real.py's."""
import io
import itertools
import multiprocessing
import os
import queue
import random
import signal
import sys
import threading

from real import SPANS, Device, Warm, pictures, timed
from stranger import CPU, job, mortal

LOOP = "sync_bound launch_bound host_bound"


def chatter(s, many):
    """Words of a made-up language."""
    parts = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrs"]
    return ["".join(s.random.choices(parts, k=s.random.randint(1, 4))) for _ in range(many)]


@job(data=CPU, beside="launch_bound", rest=LOOP)
def lora_dialogues(s):
    """LoRA on a Llama; workers tokenise dialogues turn by turn, and the collate function pads."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import peft
    import tokenizers
    import torch
    import transformers as tf
    words = chatter(s, 6000)
    turns, longest = s.int("turns", 4, 12), s.int("words", 100, 400)

    def say():
        return " ".join(s.random.choices(words, k=s.random.randint(longest // 2, longest)))
    talks = [[say() for _ in range(turns)] for _ in range(120)]
    tok = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train_from_iterator([" ".join(words)], tokenizers.trainers.BpeTrainer(
        vocab_size=3000, special_tokens=["<pad>", "<unk>", "<eos>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    eos, length = tok.token_to_id("<eos>"), 512

    def encode(talk):
        ids, labels = [], []
        for k, text in enumerate(talk):
            role = "### human: " if k % 2 == 0 else "### answer: "
            new = tok.encode(role + text + "\n").ids + [eos]
            ids += new
            labels += [-100] * len(new) if k % 2 == 0 else new
        return torch.tensor(ids[:length]), torch.tensor(labels[:length])

    ready = encode(talks[0])

    class Dialogues(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 6

        def __getitem__(self, i):
            return ready if s.fix else encode(talks[i % len(talks)])

    def collate(items):
        pad = torch.nn.utils.rnn.pad_sequence
        ids = pad([x for x, _ in items], batch_first=True)
        mask = pad([torch.ones_like(x) for x, _ in items], batch_first=True)
        labels = pad([y for _, y in items], batch_first=True, padding_value=-100)
        return ids, mask, labels

    d = Device(s)
    with torch.device(d.dev):
        net = tf.LlamaForCausalLM(tf.LlamaConfig(
            vocab_size=tok.get_vocab_size(), hidden_size=2048, intermediate_size=5504,
            num_hidden_layers=s.int("layers", 3, 5), num_attention_heads=16,
            num_key_value_heads=16, max_position_embeddings=1024))
    net = peft.get_peft_model(net.to(d.dev, torch.bfloat16), peft.LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, target_modules=["q_proj", "v_proj"],
        task_type="CAUSAL_LM")).to(d.dev)
    net.train()
    opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=2e-4)
    loader = torch.utils.data.DataLoader(
        Dialogues(), batch_size=s.one("batch", 8, 16), num_workers=s.int("workers", 1, 3),
        shuffle=True, collate_fn=collate, pin_memory=True, persistent_workers=True)
    many, warm, total = s.int("accumulate", 1, 3), Warm(s), torch.zeros((), device=d.dev)
    for i, (ids, mask, labels) in enumerate(timed(s, loader)):
        if i % many == 0:
            warm.step()
        else:
            s.mark("micro")
        with d.work():
            ids, mask, labels = (x.to(d.dev, non_blocking=True) for x in (ids, mask, labels))
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                loss = net(input_ids=ids, attention_mask=mask, labels=labels,
                           use_cache=False).loss / many
            loss.backward()
            total += loss.detach()
            if i % many == many - 1:
                opt.step()
                opt.zero_grad(set_to_none=True)
        if i % many == many - 1:
            total.item()
            total.zero_()


@job(data=CPU, rest=LOOP)
def tar_pictures(s):
    """Workers stream tar shards of pictures, shuffle them in a buffer, decode and jitter them."""
    import tarfile
    import torch
    import torchvision
    from PIL import Image
    paths, shards = pictures(s, 64), [s.path("%d.tar" % i) for i in range(12)]
    for shard in shards:
        with tarfile.open(shard, "w") as f:
            for i in s.random.sample(range(len(paths)), 32):
                f.add(paths[i], "%d.jpg" % i)
                label = tarfile.TarInfo("%d.cls" % i)
                text = str(i % 10).encode()
                label.size = len(text)
                f.addfile(label, io.BytesIO(text))
    v = torchvision.transforms
    change = v.Compose([v.RandomResizedCrop(176), v.RandomHorizontalFlip(),
                        v.ColorJitter(0.3, 0.3, 0.3), v.ToTensor(),
                        v.Normalize([0.5] * 3, [0.25] * 3)])
    ready = torch.randn(3, 176, 176)

    def samples(mine, rng):
        while True:
            rng.shuffle(mine)
            for shard in mine:
                with tarfile.open(shard, "r|") as f:
                    jpg = None
                    for member in f:
                        blob = f.extractfile(member).read()
                        if member.name.endswith(".jpg"):
                            jpg = blob
                        else:
                            yield jpg, int(blob)

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            me = torch.utils.data.get_worker_info()
            rng, kept = random.Random(me.seed), []
            for sample in samples(shards[me.id::me.num_workers], rng):
                if len(kept) < 100:
                    kept.append(sample)
                    continue
                k = rng.randrange(len(kept))
                (jpg, y), kept[k] = kept[k], sample
                if s.fix:
                    yield ready, y
                    continue
                with Image.open(io.BytesIO(jpg)) as f:
                    yield change(f.convert("RGB")), y

    d = Device(s)
    net = torchvision.models.resnet50(num_classes=10)
    net = net.to(d.dev).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    loader = torch.utils.data.DataLoader(
        Shards(), batch_size=s.one("batch", 32, 48, 64), num_workers=s.int("workers", 3, 10),
        pin_memory=True)
    warm = Warm(s)
    for x, y in timed(s, loader):
        warm.step()
        with d.work():
            x = x.to(d.dev, non_blocking=True, memory_format=torch.channels_last)
            y = y.to(d.dev, non_blocking=True)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        loss.item()


def sound_rank(s, n, clips, batch, workers):
    """One of the two ranks."""
    import torch
    import torch.distributed as dist
    window = torch.hann_window(512)

    class Clips(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 6

        def __getitem__(self, i):
            x = torch.stft(clips[i % len(clips)], 512, 128, window=window, return_complex=True)
            x = (x.abs() + 1e-3).log()[None, None]
            return torch.nn.functional.interpolate(x, (128, 128), mode="bilinear")[0], i % 10

    # the workers first: they shall not have the sockets
    batches = iter(torch.utils.data.DataLoader(Clips(), batch_size=batch, num_workers=workers))
    dist.init_process_group("gloo", rank=n, world_size=2,
                            init_method="file://" + os.path.abspath(s.path("meet")))
    d, m = Device(s), torch.nn
    torch.manual_seed(1)
    net = m.Sequential(
        m.Conv2d(1, 128, 3, 1, 1), m.ReLU(), m.Conv2d(128, 128, 3, 1, 1), m.ReLU(),
        m.Conv2d(128, 128, 3, 1, 1), m.ReLU(), m.Conv2d(128, 128, 3, 2, 1), m.ReLU(),
        m.AdaptiveAvgPool2d(1), m.Flatten(), m.Linear(128, 10)).to(d.dev)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    params, warm = list(net.parameters()), Warm(s)
    for x, y in timed(s, batches):
        if n == 0:
            warm.step()
        else:
            s.mark()
        with d.work():
            x, y = x.to(d.dev), y.to(d.dev)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                loss = m.functional.cross_entropy(net(x), y)
            loss.backward()
            flat = torch.cat([p.grad.flatten() for p in params])
        flat = flat.cpu()
        with s.during("peer"):
            dist.all_reduce(flat)
        with d.work():
            parts = (flat.to(d.dev) / 2).split([p.numel() for p in params])
            for p, g in zip(params, parts):
                p.grad.copy_(g.view_as(p))
            opt.step()


@job(data="rank_straggler " + CPU, peer="rank_straggler sync_bound host_bound", rest=LOOP)
def sorted_ranks(s):
    """Two ranks average their gradients; of clips sorted by length, one has the longer half."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    usual, factor = s.int("samples", 24000, 64000), s.int("factor", 3, 9)
    lengths = [usual + i * 50 for i in range(24)]
    lengths += [usual * (1 if s.fix else factor) + i * 50 for i in range(24)]
    clips = [torch.randn(k) for k in lengths]
    batch, workers, parent = s.one("batch", 24, 32, 48), s.int("workers", 2, 4), os.getpid()

    def rank(n):
        s.rank(n)
        try:
            sound_rank(s, n, clips[24 * n:24 * n + 24], batch, workers)
        except RuntimeError as e:  # the other has ended
            print(e, file=sys.stderr)
        s.end()

    def other():
        mortal(parent, signal.SIGTERM)
        rank(1)
    # not a daemon: those may not have workers
    multiprocessing.get_context("fork").Process(target=other).start()
    rank(0)


@job(data="main_thread_loading", rest=LOOP)
def sage_numpy(s):
    """GraphSAGE; numpy samples the next neighbourhood meanwhile, and a second stream copies it."""
    import numpy as np
    import torch
    rng = np.random.default_rng(s.random.randrange(1 << 30))
    nodes, width, classes = 150000, 128, 40
    degree = rng.integers(4, 40, nodes)
    start = np.concatenate([[0], np.cumsum(degree)[:-1]])
    edges = rng.integers(0, nodes, int(degree.sum()))
    features = rng.random((nodes, width), dtype=np.float32)
    labels = rng.integers(0, classes, nodes)
    batch, near, far = s.int("seeds", 200, 1000), s.int("near", 8, 15), s.int("far", 5, 10)
    hidden = s.one("hidden", 256, 1024)
    d, side = Device(s), torch.cuda.Stream()

    def neighbours(v, many):
        at = (rng.random((len(v), many)) * degree[v][:, None]).astype(np.int64)
        return edges[start[v][:, None] + at].ravel()

    def sample():
        seeds = rng.integers(0, nodes, batch)
        first = neighbours(seeds, near)
        second = neighbours(first, far)
        ids, place = np.unique(np.concatenate([seeds, first, second]), return_inverse=True)
        made = features[ids], place.reshape(-1), labels[seeds]
        made = [torch.from_numpy(x).pin_memory() for x in made]
        with torch.cuda.stream(side):
            return [x.to(d.dev, non_blocking=True) for x in made]

    n = torch.nn

    class Sage(n.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = n.Linear(2 * width, hidden), n.Linear(2 * hidden, hidden)
            self.last = n.Linear(hidden, classes)

        def forward(self, x, place):
            seeds, first, second = x[place].split([batch, batch * near, batch * near * far])
            h0 = self.a(torch.cat([seeds, first.view(batch, near, -1).mean(1)], 1)).relu()
            h1 = self.a(torch.cat([first, second.view(batch * near, far, -1).mean(1)], 1)).relu()
            h = self.b(torch.cat([h0, h1.view(batch, near, -1).mean(1)], 1)).relu()
            return self.last(n.functional.dropout(h, 0.5))

    net = Sage().to(d.dev)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    warm, ready = Warm(s), sample()
    coming = ready
    while True:
        warm.step()
        here = torch.cuda.current_stream()
        here.wait_stream(side)
        x, place, y = coming
        for t in coming:
            t.record_stream(here)
        with d.work():
            opt.zero_grad(set_to_none=True)
            loss = n.functional.cross_entropy(net(x, place), y)
            loss.backward()
            opt.step()
        with s.during("data"):  # the device has the step before it
            coming = ready if s.fix else sample()
        loss.item()


@job(data="main_thread_loading", host="host_bound", rest=LOOP)
def segment_metrics(s):
    """Segmentation; torchmetrics keeps accuracy, F1 and Jaccard on the CPU, and at each step."""
    import torch
    import torchvision
    from torchmetrics import MetricCollection
    from torchmetrics.classification import (MulticlassAccuracy, MulticlassF1Score,
                                             MulticlassJaccardIndex)
    classes, batch, side = s.int("classes", 8, 30), s.int("batch", 6, 16), 256
    images = torch.randint(0, 255, (128, 3, side, side), dtype=torch.uint8)
    masks = torch.randint(0, classes, (128, side // 8, side // 8))
    masks = masks.repeat_interleave(8, 1).repeat_interleave(8, 2)
    metrics = MetricCollection([MulticlassAccuracy(num_classes=classes),
                                MulticlassF1Score(num_classes=classes),
                                MulticlassJaccardIndex(num_classes=classes)])
    d = Device(s)
    net = torchvision.models.segmentation.fcn_resnet50(
        weights=None, weights_backbone=None, num_classes=classes)
    net = net.to(d.dev).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    warm = Warm(s)
    for i in itertools.count(1):
        warm.step()
        with s.during("data"):
            at = torch.randint(0, len(images), (batch,))
            x, y = images[at], masks[at]
        with d.work():
            x = x.to(d.dev).to(memory_format=torch.channels_last).float().div_(255)
            there = y.to(d.dev)
            opt.zero_grad(set_to_none=True)
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                out = net(x)["out"]
            loss = torch.nn.functional.cross_entropy(out.float(), there)
            loss.backward()
            opt.step()
            guess = out.detach().argmax(1)
        loss.item()
        if s.fix and i % 100:
            continue
        guess = guess.cpu()
        with s.during("host"):
            values = metrics(guess, y)
            {k: round(v.item(), 4) for k, v in values.items()}


@job(data="main_thread_loading cpu_bound lock_bound too_few_workers", threads=True,
     beside="launch_bound", rest=LOOP)
def index_threads(s):
    """Documents for a vector index: the main thread cuts and tokenises, threads with streams of
    their own embed."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import numpy as np
    import tokenizers
    import torch
    import transformers as tf
    words = chatter(s, 5000)
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]"] + sorted(set(words[:4000])))}
    tok = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab=vocab, unk_token="[UNK]"))
    tok.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tok.enable_truncation(max_length=256)
    tok.enable_padding(pad_id=0, pad_token="[PAD]")
    texts = [" ".join(s.random.choices(words, k=1500)) for _ in range(100)]
    batch, overlap = s.one("batch", 32, 64), s.int("overlap", 20, 120)

    def passages():
        for text in itertools.cycle(texts):
            parts = text.split()
            for at in range(0, len(parts) - 200, 200 - overlap):
                yield " ".join(w.strip(".,;") for w in parts[at:at + 200])
    source = passages()

    def prepare():
        found = tok.encode_batch(list(itertools.islice(source, batch)))
        return (torch.tensor([e.ids for e in found]),
                torch.tensor([e.attention_mask for e in found]))

    d, spans = Device(s), []
    net = tf.BertModel(tf.BertConfig(
        vocab_size=len(vocab), hidden_size=768, num_hidden_layers=s.one("layers", 4, 6, 12),
        num_attention_heads=12, intermediate_size=3072)).to(d.dev, torch.bfloat16).eval()
    tasks, lock = queue.Queue(4), threading.Lock()
    index, count = np.zeros((65536, 768), np.float32), 0

    def embed():
        nonlocal count
        with torch.cuda.stream(torch.cuda.Stream()), torch.inference_mode():
            while True:
                ids, mask = tasks.get()
                a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab")
                a.record()
                ids, mask = ids.to(d.dev), mask.to(d.dev)
                h = net(input_ids=ids, attention_mask=mask).last_hidden_state
                h = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                h = torch.nn.functional.normalize(h.float(), dim=1)
                b.record()
                spans.append([a, b])
                del spans[:-SPANS]
                h = h.cpu().numpy()
                with lock:
                    at = count % (len(index) - len(h))
                    index[at:at + len(h)] = h
                    count += len(h)

    def write():
        d.spans = spans[:]  # of what the threads go on to add, the end may be missing
        d.write()
    s.at_end = write
    for _ in range(s.int("threads", 2, 4)):
        threading.Thread(target=embed, daemon=True).start()
    ready, warm = prepare(), Warm(s)
    while True:
        warm.step()
        with s.during("data"):
            task = ready if s.fix else prepare()
        tasks.put(task)


@job(rest=LOOP)
def gan_statistics(s):
    """A GAN with alternating steps on resident pictures reads statistics with .item()."""
    import torch
    d, n, width, noise = Device(s), torch.nn, 64, 128
    images = torch.rand(8192, 3, 64, 64, device=d.dev) * 2 - 1
    layers = [n.ConvTranspose2d(noise, 8 * width, 4), n.BatchNorm2d(8 * width), n.ReLU()]
    for k in (8, 4, 2):
        layers += [n.ConvTranspose2d(k * width, k * width // 2, 4, 2, 1),
                   n.BatchNorm2d(k * width // 2), n.ReLU()]
    maker = n.Sequential(*layers, n.ConvTranspose2d(width, 3, 4, 2, 1), n.Tanh()).to(d.dev)
    layers = [n.Conv2d(3, width, 4, 2, 1), n.LeakyReLU(0.2)]
    for k in (1, 2, 4):
        layers += [n.Conv2d(k * width, 2 * k * width, 4, 2, 1), n.BatchNorm2d(2 * k * width),
                   n.LeakyReLU(0.2)]
    critic = n.Sequential(*layers, n.Conv2d(8 * width, 1, 4), n.Flatten()).to(d.dev)
    opts = [torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (maker, critic)]
    batch, turns = s.one("batch", 64, 128, 256), s.int("critic_steps", 1, 3)
    kinds = [lambda p: p.grad.norm(), lambda p: p.grad.abs().max(), lambda p: p.norm(),
             lambda p: p.grad.mean(), lambda p: p.std(unbiased=False)][:s.int("kinds", 2, 5)]
    soft, history = n.functional.softplus, {}

    @torch.no_grad()
    def statistics(net):
        for name, p in net.named_parameters():
            for k, f in enumerate(kinds):
                history[name, k] = f(p).item()

    warm = Warm(s)
    for i in itertools.count():
        warm.step()
        for _ in range(turns):
            with d.work():
                real = images[torch.randint(0, len(images), (batch,), device=d.dev)]
                with torch.no_grad():
                    fake = maker(torch.randn(batch, noise, 1, 1, device=d.dev))
                loss_c = soft(-critic(real)).mean() + soft(critic(fake)).mean()
                opts[1].zero_grad(set_to_none=True)
                loss_c.backward()
                opts[1].step()
            history["critic"] = loss_c.item()
        if not s.fix:
            statistics(critic)
        with d.work():
            loss_m = soft(-critic(maker(torch.randn(batch, noise, 1, 1, device=d.dev)))).mean()
            opts[0].zero_grad(set_to_none=True)
            loss_m.backward()
            opts[0].step()
        history["maker"] = loss_m.item()
        if not s.fix:
            statistics(maker)


@job(ckpt="checkpoint_stall", copy="transfer_bound checkpoint_stall",
     rest=LOOP + " checkpoint_stall")
def saving_thread(s):
    """A thread saves weights and optimizer while training goes on; the next save awaits it."""
    import torch
    d, n, width = Device(s), torch.nn, 1536
    net = n.Sequential(*[m for _ in range(s.int("layers", 4, 6))
                         for m in (n.Linear(width, width), n.LayerNorm(width), n.GELU())])
    net = net.to(d.dev)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    x = torch.randn(s.one("batch", 8192, 16384), width, device=d.dev)
    every, path, saver = s.int("every", 10, 50), s.path("last.pt"), None

    def down(o):
        if isinstance(o, torch.Tensor):
            return o.detach().to("cpu", copy=True)
        if isinstance(o, dict):
            return {k: down(v) for k, v in o.items()}
        return [down(v) for v in o] if isinstance(o, list) else o

    def save(state):
        with open(path + ".part", "wb") as f:
            torch.save(state, f)
            f.flush()
            os.fsync(f.fileno())
        os.rename(path + ".part", path)

    warm = Warm(s)
    for i in itertools.count(1):
        warm.step()
        with d.work():
            opt.zero_grad(set_to_none=True)
            loss = (net(x) - x).square().mean()
            loss.backward()
            opt.step()
        loss.item()
        if i % every or s.fix:
            continue
        if saver:
            with s.during("ckpt"):
                saver.join()
        with s.during("copy"):
            state = down({"net": net.state_dict(), "opt": opt.state_dict(), "step": i})
        saver = threading.Thread(target=save, args=(state,), daemon=True)
        saver.start()
