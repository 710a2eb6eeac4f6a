# SPDX-License-Identifier: BSD-2-Clause
"""What a composed job may be, and how one is drawn from a seed (docs/composed-jobs.md)."""

import random

DIMENSIONS = {
    "transport": ("none", "inline", "pythread", "threadpool", "procpool", "loader_fd",
                  "loader_fs", "mpqueue", "mppipe", "shm_sem", "shm_lock", "eventfd",
                  "unix_out", "tcp_out", "shm_out", "server"),
    "work": ("cpu", "read", "direct", "mapped", "http", "sleep", "lock_thread", "lock_mp",
             "lock_flock", "lock_fcntl", "lock_sleep", "subprocess", "gil"),
    "stages": (1, 2, 3),
    "skew": ("none", "one_slow", "tail", "nth", "growing"),
    "feature": ("plain", "graph", "item", "accum", "ahead", "eval", "ckpt", "ckpt_thread",
                "log_sleep", "log_cpu", "restart", "ranks", "log_http", "exchange", "saver",
                "slow_out", "events", "metrics"),
    "sync": ("each", "every_n", "never", "item"),
    "how": ("block", "spin", "yield"),
    "copies": ("pinned", "pageable"),
    "load": ("healthy", "light", "half", "starved"),
}
THREADS = ("pythread", "threadpool")
OUTSIDE = ("unix_out", "tcp_out", "shm_out")
LOADERS = ("loader_fd", "loader_fs")
FORKED = ("procpool", "mpqueue", "mppipe", "shm_sem", "shm_lock", "eventfd") + LOADERS
RESTARTS = ("procpool", "mpqueue", "mppipe") + LOADERS
RANKED = ("inline", "pythread", "mpqueue", "mppipe") + LOADERS
NO_INPUT = ("none", "server")
HELPERS = ("mpqueue", "mppipe", "shm_sem", "shm_lock", "eventfd") + OUTSIDE
# What the loop waits for that is no data (beside.py); of these, some in each step.
BESIDE = ("log_http", "exchange", "saver", "slow_out", "events", "metrics")
EACH_STEP = ("log_http", "exchange", "slow_out", "events")
LOCKS = ("lock_thread", "lock_mp", "lock_flock", "lock_fcntl", "lock_sleep")
GPU_SHARE = {"healthy": (0.9, 0.98), "light": (0.72, 0.88), "half": (0.35, 0.65),
             "starved": (0.05, 0.3)}
CORES = 2
SLOWEST_MS = 250


def possible(d):
    t, work, skew, feature = d["transport"], d["work"], d["skew"], d["feature"]
    if t in NO_INPUT:
        return work == "cpu" and skew == "none" and d["stages"] == 1 and feature not in (
            "restart", "ahead", "ranks") and (t == "none" or feature == "plain")
    if t == "inline" and (d["stages"] > 1 or work in LOCKS or skew == "one_slow"):
        return False
    if work == "lock_thread" and t not in THREADS:
        return False
    if work == "lock_mp" and t not in THREADS + FORKED:
        return False
    if feature == "restart" and (t not in RESTARTS or d["stages"] > 2):
        return False
    if feature == "ranks" and (t not in RANKED or d["stages"] > 1):
        return False
    if feature == "ranks" and work in ("read", "direct", "mapped", "http"):
        return False
    if d["stages"] == 3 and t in LOADERS + ("procpool",):
        return False
    if feature == "graph" and d["copies"] == "pageable":
        return False
    if feature == "item" and d["sync"] in ("every_n", "never"):
        return False
    return True


def dealt(seed):
    """One value of each dimension. A deck of each is dealt to the end before it
    is shuffled anew, so that no value stays away for long."""
    out = {}
    for name, values in DIMENSIONS.items():
        block, at = divmod(seed, len(values))
        deck = list(values)
        random.Random("%s/%d" % (name, block)).shuffle(deck)
        out[name] = deck[at]
    return out


def chosen(seed):
    """Values that can be together: what comes later in the list yields. Transport,
    work and feature are first in turns; those that go with little are always."""
    rng, hand = random.Random("chosen/%d" % seed), dealt(seed)
    if hand["transport"] in NO_INPUT:  # there is little to choose
        hand.update(work="cpu", skew="none", stages=1)
        if hand["transport"] == "server":
            hand["feature"] = "plain"
    first = (("transport", "work", "feature"), ("work", "feature", "transport"),
             ("feature", "transport", "work"))[
        0 if hand["transport"] in NO_INPUT else 1 if hand["work"] == "lock_thread"
        else seed // 16 % 3]
    order = first + tuple(n for n in DIMENSIONS if n not in first)
    for keep in range(len(order), -1, -1):
        for _ in range(200):
            d = {n: hand[n] if i < keep else rng.choice(DIMENSIONS[n])
                 for i, n in enumerate(order)}
            if possible(d):
                return {n: d[n] for n in DIMENSIONS}
    raise AssertionError("no job for seed %d" % seed)


def parallel(d, workers):
    """At how many batches at a time the makers really work."""
    if d["work"] in LOCKS or d["work"] in ("read", "direct", "mapped"):
        return 1
    if d["transport"] == "inline" or d["work"] == "gil" and d["transport"] in THREADS:
        return 1
    if d["work"] in ("cpu", "gil", "subprocess"):
        return min(workers, CORES * 0.85)
    return workers


def spec_of(d, seed):
    """The job's numbers."""
    rng = random.Random("spec/%d" % seed)
    u = rng.uniform
    s = dict(d, seed=seed)
    s["workers"] = 1 if d["transport"] == "inline" or d["transport"] in NO_INPUT else \
        rng.choice((2, 3, 4) if d["skew"] == "one_slow" or d["work"] in LOCKS
                   else (1, 2, 2, 3))
    s["helper"] = d["transport"] in HELPERS and d["stages"] == 2 and rng.random() < .5 \
        or d["transport"] in HELPERS and d["stages"] == 3
    s["pin"] = d["transport"] in LOADERS and d["stages"] == 2
    s["feeders"] = 0 if s["pin"] else d["stages"] - 1 - s["helper"]
    s["helper_ms"] = u(0.2, 1.5)
    s["batch_kb"] = rng.choice((64, 256, 600))
    s["launches"] = rng.choice((8, 20, 40))
    s["gpu_ms"] = u(5, 30)
    s["skew_n"] = {"tail": rng.randint(15, 40), "nth": rng.choice((3, 4, 8, 12))}.get(
        d["skew"], 0)
    s["skew_factor"] = {"one_slow": u(3, 8), "tail": u(12, 30), "nth": u(4, 10),
                        "growing": u(2, 4)}.get(d["skew"], 1)
    share = u(*GPU_SHARE[d["load"]])
    mean = 1  # batches cost so many times the usual, on average
    if s["skew_n"]:
        mean = 1 + (s["skew_factor"] - 1) / s["skew_n"]
    elif d["skew"] == "one_slow":  # in order, all go at the slow one's pace
        mean = s["skew_factor"]
    if d["transport"] == "inline" or d["transport"] == "none":
        supply = s["gpu_ms"] * (1 - share) / share
    elif d["load"] == "healthy":
        supply = s["gpu_ms"] * u(0.2, 0.5)
    else:
        supply = s["gpu_ms"] / share
    if supply > SLOWEST_MS:  # some steps must fit into seconds
        s["gpu_ms"] *= SLOWEST_MS / supply
        supply = SLOWEST_MS
    s["base_ms"] = min(u(0.2, 0.6), supply / 4)
    s["cost_ms"] = max(supply * parallel(d, s["workers"]) / mean - s["base_ms"], 0.3)
    if s["cost_ms"] < 4 and d["work"] == "subprocess":
        s["gpu_ms"] *= 10 / s["cost_ms"]
        s["cost_ms"] = 10.0
        s["gpu_ms"] = min(s["gpu_ms"], 60)
    # reads: so many files a batch, at a rate that makes them cost so much
    s["file_kb"] = 64 if d["work"] == "mapped" else 256
    s["reads"] = rng.choice((1, 2, 3))
    need = s["file_kb"] * s["reads"] / max(s["cost_ms"] / 1e3, 1e-3)
    s["rate_kb"] = int(min(max(need, 4096), 400 * 1024))
    s["gzip_kb_ms"] = 20
    s["sync_n"] = rng.choice((4, 10))
    s["items"] = rng.choice((2, 4))
    s["after_item_us"] = u(100, 1500)
    s["accum"] = rng.choice((2, 4))
    s["every"] = rng.choice((10, 16, 25))
    s["evals"] = rng.choice((3, 6))
    # a pause takes a part of the time, not all of it
    s["pause_ms"] = min(max(s["every"] * s["gpu_ms"] / share * u(0.05, 0.5), 30), 800)
    if d["feature"] in BESIDE:
        s["every"] = rng.choice((1, 1, 4)) if d["feature"] in EACH_STEP else \
            rng.choice((6, 10, 16))
        s["pause_ms"] = min(max(s["every"] * s["gpu_ms"] / share * u(0.15, 0.8), 4), 400)
    s["host"] = rng.choice(("cpu", "cpu", "sleep"))
    s["collate"] = rng.random() < 0.25
    s["in_turn"] = rng.random() < 0.5
    s["ask"] = rng.random() < 0.7
    s["ask_ms"] = u(8, 60) if d["load"] != "healthy" else 1
    s["clients"] = 1 if d["load"] != "healthy" else 4
    s["batching"] = rng.random() < 0.5
    s["rank_factor"] = rng.choice((1, 2.5))
    s["sharing"] = "file_system" if d["transport"] == "loader_fs" else "file_descriptor"
    if d["transport"] in NO_INPUT and d["transport"] == "server":
        s["cost_ms"] = 0
    return s


def drawn(seed):
    return spec_of(chosen(seed), seed)


PLAIN = {"transport": "mppipe", "work": "cpu", "stages": 1, "skew": "none",
         "feature": "plain", "sync": "each", "how": "block", "copies": "pinned",
         "load": "half"}


def row(name, dims, **numbers):
    def make(seed):
        s = spec_of(dict(PLAIN, **dims), seed)
        s.update({"workers": 2, "gpu_ms": 10.0, "launches": 20, "batch_kb": 600}, **numbers)
        return dict(s, row=name)
    return name, make


# The table of what the tool was wrong on, each as a job of its own.
ROWS = dict((
    row("no_input", {"transport": "none", "sync": "item"}, cost_ms=20.0, gpu_ms=6.0,
        host="cpu", workers=1),
    row("pipe", {}, cost_ms=40.0),
    row("pipe_slow", {"skew": "one_slow"}, workers=3, cost_ms=10.0, skew_factor=30,
        in_turn=True),
    row("semaphores", {"transport": "shm_sem"}, cost_ms=40.0),
    row("semaphores_slow", {"transport": "shm_sem", "skew": "one_slow"}, cost_ms=10.0,
        workers=3, skew_factor=20),
    row("service", {"transport": "tcp_out"}, cost_ms=40.0, workers=1, ask=True),
    row("pauses", {"transport": "loader_fd", "feature": "log_sleep", "load": "healthy"},
        cost_ms=5.0, gpu_ms=30.0, every=10, pause_ms=400.0),
    row("flock_sleep", {"transport": "loader_fd", "work": "lock_sleep"}, cost_ms=48.0),
    row("pin", {"transport": "loader_fd", "stages": 2}, cost_ms=40.0, pin=True, feeders=0),
    row("restarts", {"transport": "loader_fd", "feature": "restart"}, cost_ms=8.0,
        gpu_ms=20.0, every=8),
    row("gzip", {"transport": "loader_fd", "work": "subprocess"}, cost_ms=50.0),
    row("tail", {"transport": "loader_fd", "work": "sleep", "skew": "tail"}, cost_ms=6.0,
        skew_n=40, skew_factor=40),
    row("executor", {"transport": "procpool"}, cost_ms=40.0),
    row("thread_gil", {"transport": "pythread", "work": "gil"}, cost_ms=30.0, workers=1,
        collate=False),
    row("ranks", {"transport": "loader_fd", "feature": "ranks"}, cost_ms=10.0, gpu_ms=12.0,
        rank_factor=4, workers=1),
    row("server", {"transport": "server"}, cost_ms=0, ask_ms=100.0, clients=1,
        batching=True, gpu_ms=5.0, workers=1),
    row("sleepers", {"transport": "none"}, cost_ms=20.0, gpu_ms=5.0, host="sleep",
        sleepers=128, workers=1),
    row("log_http", {"transport": "pythread", "feature": "log_http"}, cost_ms=2.0, every=1,
        pause_ms=12.0),
    row("exchange", {"transport": "pythread", "feature": "exchange"}, cost_ms=2.0, every=1,
        pause_ms=12.0),
    row("saver", {"transport": "pythread", "feature": "saver"}, cost_ms=2.0, every=6,
        pause_ms=90.0),
    row("slow_out", {"transport": "pythread", "feature": "slow_out"}, cost_ms=2.0, every=1,
        pause_ms=25.0),
    row("events", {"transport": "pythread", "feature": "events"}, cost_ms=2.0, every=1,
        pause_ms=25.0),
    row("metrics", {"transport": "pythread", "feature": "metrics"}, cost_ms=2.0, every=10,
        pause_ms=80.0),
))
