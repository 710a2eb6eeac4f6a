# SPDX-License-Identifier: BSD-2-Clause
"""The kinds of jobs and of changes, with their parameters drawn at random.

Each function draws (side A, changes to it for side B, what is told of it, marks):
`told` is (change, value) of a row of the report's what-if; marks are "serial" (more
workers can gain nothing), "http" (a server: "serial" or "open", ms), "disk" (KiB/s),
"one_core".
"""


def base(r, work, **more):
    a = {"loader": r.choice(["torch", "own"]), "work": work, "batch": r.choice([1, 2, 4]),
         "workers": r.choice([1, 2, 2, 3, 4]), "kernel_us": r.choice([50, 100, 200]),
         "launches": r.choice([10, 20]), "sync_every": 1, "jitter": r.choice([0, .2, .5])}
    a.update(more)
    return a


def scaled(r, a, item_ms):
    """Items of about `item_ms` together take 8 to 30 ms a batch."""
    total = r.uniform(8, 30) / a["batch"]
    a["work"] = [[k, ms * total / item_ms] for k, ms in a["work"]]
    return a


def more(r, a, serial=False):
    n = a["workers"]
    b = r.choice([m for m in (1, 2, 3, 4, 6, 8) if m > n and m <= 4 * n])
    return {"workers": b}, ("workers", b)


def sleep_workers(r):
    a = scaled(r, base(r, [["sleep", 1]], workers=r.choice([2, 2, 3, 4])), 1)
    return a, *more(r, a), {}


def sleep_cpu_workers(r):
    a = scaled(r, base(r, [["sleep", 1], ["cpu", .08]], workers=r.choice([2, 3])), 1)
    return a, *more(r, a), {}


def fewer_workers(r):
    a = scaled(r, base(r, [["sleep", 1]], workers=r.choice([3, 4, 6])), 1)
    b = r.choice([1, 2])
    return a, {"workers": b}, ("workers", b), {}


def cpu_free(r):
    a = scaled(r, base(r, [["cpu", 1], ["sleep", .3]], workers=1, kernel_us=50), 1)
    return a, {"workers": 2}, ("workers", 2), {"cpu": True}


def cpu_full(r):
    a = scaled(r, base(r, [["cpu", 1]], workers=2, cores=1), 1)
    b = r.choice([3, 4])
    return a, {"workers": b}, ("workers", b), {"cpu": True, "serial": True}


def add_core(r):
    a = scaled(r, base(r, [["cpu", 1]], workers=2, cores=1), 1)
    return a, {"cores": 2}, ("cores", 2), {"cpu": True}


def flock_workers(r):
    a = scaled(r, base(r, [["flock", 1]], workers=r.choice([2, 2, 3, 4])), 1)
    return a, *more(r, a), {"serial": True}


def flock_part_workers(r):
    """The lock is held for half of an item: two or more workers fill it."""
    a = scaled(r, base(r, [["flock", .6], ["sleep", .3]], workers=r.choice([2, 3])), 1)
    return a, *more(r, a), {"serial": True}


def mplock_workers(r):
    a = scaled(r, base(r, [["mplock", 1]], workers=r.choice([2, 2, 3, 4])), 1)
    return a, *more(r, a), {"serial": True}


def http_serial_workers(r):
    a = base(r, [["http", 1]], workers=r.choice([2, 3, 4]), keepalive=False)
    return a, *more(r, a), {"serial": True,
                            "http": ["serial", r.uniform(8, 25) / a["batch"]]}


def http_open_workers(r):
    a = base(r, [["http", 1]], workers=r.choice([2, 3, 4]))
    return a, *more(r, a), {"http": ["open", r.uniform(8, 25) / a["batch"]]}


def disk_workers(r):
    a = base(r, [["disk", 1]], workers=r.choice([2, 3, 4]), batch=r.choice([1, 2]))
    return a, *more(r, a), {"serial": True, "disk": r.choice([6000, 8000, 12000])}


def cache_disk(r):
    a = base(r, [["disk", 1], ["sleep", 2]], batch=r.choice([1, 2]),
             workers=r.choice([1, 2, 3]))
    return a, {"work": [["sleep", 2]]}, ("no_disk_wait", None), {
        "disk": r.choice([6000, 8000, 12000])}


def cache_store(r):
    a = base(r, [["http", 1], ["sleep", 2]], workers=r.choice([1, 2, 3]))
    return a, {"work": [["sleep", 2]]}, ("no_network_wait", None), {
        "http": ["open", r.uniform(8, 25) / a["batch"]]}


def no_flock(r):
    a = scaled(r, base(r, [["flock", .8], ["sleep", .3]], workers=r.choice([2, 3, 4])), 1)
    return a, {"work": [["sleep", ms] for _, ms in a["work"]]}, ("no_lock", None), {}


def no_mplock(r):
    a = scaled(r, base(r, [["mplock", .8], ["sleep", .3]], workers=r.choice([2, 3, 4])), 1)
    return a, {"work": [["sleep", ms] for _, ms in a["work"]]}, ("no_lock", None), {}


def slow_worker(r):
    a = scaled(r, base(r, [["sleep", 1]], workers=r.choice([2, 3, 4]),
                       slow=r.choice([2.5, 3, 4, 5]), jitter=.2), 1)
    return a, {"slow": 1}, ("slow_worker_fixed", None), {}


def tail(r):
    a = scaled(r, base(r, [["sleep", 1]], workers=r.choice([2, 3, 4]), batch=1,
                       tail=[r.uniform(.03, .08), r.uniform(8, 15)], jitter=.2), 1)
    return a, {"tail": None}, ("slow_items_fixed", None), {}


def no_sync(r):
    a = scaled(r, base(r, [["sleep", 1]], workers=4, kernel_us=200,
                       launches=r.choice([20, 30]), after_cpu_ms=r.uniform(2, 4)), .3)
    return a, {"sync_every": 0}, ("fewer_syncs", None), {"cpu": True}


def no_pause(r):
    every = r.choice([1, 1, 10])
    a = scaled(r, base(r, [["sleep", 1]], workers=4, pause_every=every,
                       pause_ms=r.uniform(4, 12) * every), 1)
    return a, {"pause_ms": 0}, ("no_host_pause", None), {}


KINDS = [sleep_workers, sleep_cpu_workers, fewer_workers, cpu_free, cpu_full, add_core,
         flock_workers, flock_part_workers, mplock_workers, http_serial_workers,
         http_open_workers, disk_workers, cache_disk, cache_store, no_flock, no_mplock,
         slow_worker, tail, no_sync, no_pause]
