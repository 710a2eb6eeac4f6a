# SPDX-License-Identifier: BSD-2-Clause
"""The scenarios: what each is about, and how its parameters are drawn.

No scenario names its verdict. The label of a run follows from its own log by
the rules of labels.py; `aim` says what the scenario is meant to show, and a
run whose log says otherwise (a busy machine, an unlucky draw) still counts,
under what it turned out to be.
"""

import collections

Scenario = collections.namedtuple(
    "Scenario", "name aim draw about program slow_disk rate hogs net_ms ask_ms "
    "env stop quota also roots checks latency_us room_mb kinds pattern "
    "net_rate slow_us file requests")
ALL = frozenset("root wait steps guilty causes severity busy".split())


def scenario(name, aim, about, draw, program="job.py", slow_disk=None,
             rate=(20, 32), hogs=0, net_ms=None, ask_ms=None, env=None,
             stop=None, quota=False, also=(), roots=None, without="",
             latency_us=(0, 0), room_mb=None, kinds=(), pattern=None,
             net_rate=None, slow_us=None, file=None,
             requests=None):
    """draw(u, i) gives the arguments: u(a, b) is a real, i(a, b) an integer.
    rate: MiB/s of the slow disk; net_ms: delay of the data server, net_rate:
    its bytes a second on each connection; ask_ms:
    mean pause of the client; stop: index of the worker to stop; quota:
    the runner gives each worker a quarter of a core; also:
    verdicts that must be there beside the root; roots: where the runner
    itself makes the cause; without: checks that the log cannot answer;
    latency_us: of the slow file system; room_mb: a memory limit leaves the
    pages of files so much; kinds: of io_bound or slow_file, by what the
    runner made slow (None: it may say that it cannot tell); slow_us: more for
    each read of `file`, of the slow file system; file: that the verdict names;
    requests: a second, of the throttled disk, instead of bytes;
    pattern: in which order the job says that it reads its one large file."""
    return Scenario(name, aim, draw, about, program, slow_disk, rate, hogs,
                    net_ms, ask_ms, env or {}, stop, quota, tuple(also), roots,
                    ALL - frozenset(without.split()), latency_us, room_mb,
                    tuple(kinds), pattern, net_rate, slow_us, file, requests)


def plain(text):
    return lambda u, i: text


def cpu2(more):
    """Two workers that cannot keep up with 10 ms of GPU work."""
    return lambda u, i: "--workers 2 --cpu-ms %.1f --jitter %.2f %s" % (
        u(11, 18), u(0.05, 0.3), more)


def healthy(more):
    """Two workers that easily keep up with 30 to 50 ms of GPU work."""
    return lambda u, i: "--workers 2 --cpu-ms %.1f --kernel-us %d %s" % (
        u(0.5, 2), u(800, 1200), more)


def disk(more):
    return lambda u, i: "--workers %d --cache dropped --file-kb 256 " \
        "--cpu-ms %.1f %s" % (i(2, 3), u(0.5, 1.5), more)


def share(wanted):
    """One worker; the GPU's 10 ms and a batch's cost give the wait."""
    return lambda u, i: "--workers 1 --batch-size 4 --cpu-ms %.3f" % (
        (10.35 / (1 - wanted(u)) - 2.2) / 4)


TORCH = [
    # ---- who loads
    scenario("w0_cpu", "main_thread_loading", "no workers, CPU",
             lambda u, i: "--workers 0 --cpu-ms %.1f --jitter 0.2" % u(3, 8)),
    scenario("w0_disk", "main_thread_loading", "no workers, slow disk",
             plain("--workers 0 --cache dropped --file-kb 256"),
             slow_disk="auto"),
    scenario("cpu2", "cpu_bound", "two CPU-bound workers", cpu2("")),
    scenario("one_worker", "too_few_workers", "one CPU-bound worker, free core",
             lambda u, i: "--workers 1 --cpu-ms %.1f" % u(6, 10)),
    scenario("over4", "cpu_oversubscribed", "four CPU-bound workers",
             lambda u, i: "--workers 4 --cpu-ms %.1f --jitter 0.2" % u(12, 18)),
    scenario("cpu_hogs", "cpu_oversubscribed", "two workers beside two hogs",
             cpu2(""), hogs=2),
    # ---- what the workers wait for
    scenario("disk", "io_bound", "slow disk", disk(""), slow_disk="auto"),
    scenario("disk_fuse", "io_bound", "slow file system", disk(""),
             slow_disk="fuse"),
    scenario("disk_hogs", "io_bound", "slow disk beside two hogs", disk(""),
             slow_disk="auto", hogs=2),
    scenario("pack_seq", "io_bound", "one large file in order, slow disk",
             lambda u, i: "--workers %d --cache dropped --access seq "
             "--record-kb 256 --cpu-ms %.1f" % (i(2, 3), u(0.5, 1.5)),
             slow_disk="blkio", kinds=("bandwidth", None), pattern="sequential"),
    scenario("pack_random", "io_bound", "records in no order, slow access",
             lambda u, i: "--workers %d --cache dropped --access random "
             "--record-kb 48 --cpu-ms %.1f" % (i(2, 3), u(0.1, 0.5)),
             slow_disk="fuse", rate=(400, 600), latency_us=(8000, 12000),
             kinds=("random_access",), pattern="random"),
    scenario("pack_stride", "io_bound", "every eighth record, slow access",
             lambda u, i: "--workers %d --cache dropped --access stride "
             "--record-kb 32 --cpu-ms %.1f" % (i(2, 3), u(0.1, 0.5)),
             slow_disk="fuse", rate=(400, 600), latency_us=(8000, 12000),
             kinds=("random_access",), pattern="stride"),
    scenario("small_files", "io_bound", "many small files, slow access",
             lambda u, i: "--workers %d --cache dropped --files 400 --vary-kb "
             "4:60 --cpu-ms %.1f" % (i(2, 3), u(0.1, 0.5)),
             slow_disk="fuse", rate=(400, 600), latency_us=(8000, 12000),
             kinds=("many_small_files",)),
    scenario("one_reader", "io_bound", "one reader, storage far away",
             lambda u, i: "--workers 1 --cache dropped --files 100 --vary-kb "
             "160:640 --cpu-ms %.1f" % u(0.5, 1.5),
             slow_disk="fuse", rate=(800, 1000), latency_us=(12000, 16000),
             kinds=("latency",)),
    scenario("throttled", "io_bound", "a disk of few bytes a second",
             lambda u, i: "--workers %d --cache dropped --files 200 --vary-kb "
             "64:512 --cpu-ms %.1f" % (i(2, 4), u(0.1, 0.5)),
             # a second's reads may vary too little within six
             slow_disk="blkio", kinds=("bandwidth", None)),
    scenario("throttled_count", "io_bound", "a disk of few requests a second",
             lambda u, i: "--workers %d --cache dropped --files 200 --vary-kb "
             "64:512 --cpu-ms %.1f" % (i(2, 4), u(0.1, 0.5)),
             slow_disk="blkio", requests=(40, 60), kinds=("latency", None)),
    scenario("slow_link", "io_bound", "a file system of few bytes a second",
             lambda u, i: "--workers %d --cache dropped --files 200 --vary-kb "
             "64:512 --cpu-ms %.1f" % (i(2, 4), u(0.1, 0.5)),
             slow_disk="fuse", latency_us=(200, 600), kinds=("bandwidth",)),
    scenario("small_cache", "io_bound", "less memory than is read",
             lambda u, i: "--workers 2 --access random --record-kb 256 "
             "--pack-mb 384 --warm-pack --cpu-ms %.1f" % u(0.1, 0.5),
             slow_disk="blkio", rate=(8, 12), room_mb=80,
             kinds=("page_cache_too_small",), pattern="random"),
    scenario("tiny_files", "cpu_bound", "fast disk, many tiny files",
             lambda u, i: "--workers 2 --cache dropped --files 512 --file-kb 4 "
             "--batch-size %d --cpu-ms 0" % i(48, 96)),
    scenario("page_faults", "page_fault_io", "mapped files on a slow disk",
             lambda u, i: "--workers 2 --cache mapped --file-kb 128 --cpu-ms 1",
             slow_disk="auto", rate=(8, 12)),
    scenario("memmap", "page_fault_io", "records of a mapped array, slow disk",
             lambda u, i: "--workers 2 --cache mapped --access random "
             "--record-kb 64 --cpu-ms %.1f" % u(0.5, 1.5),
             slow_disk="auto", rate=(12, 16), file="big-256.bin",
             # a fault keeps the interpreter's lock, which the sender of the
             # batch before needs: neither reading of the hand-over is right
             without="causes"),
    scenario("network", "network_bound", "items from a late server",
             lambda u, i: "--workers %d --cpu-ms 1" % i(2, 3), net_ms=(8, 16)),
    scenario("network_slow", "network_bound", "items from a slow server",
             lambda u, i: "--workers %d --cpu-ms 1 --net-kb 128" % i(2, 3),
             net_ms=(0.1, 0.5), net_rate=(6e6, 12e6)),
    scenario("lock_cpu", "lock_bound", "workers share a lock, computing",
             lambda u, i: "--workers 4 --lock-ms %.1f" % u(6, 9)),
    scenario("lock_sleep", "lock_bound", "workers share a lock, sleeping",
             lambda u, i: "--workers 4 --lock-ms %.1f --lock-sleeps" % u(5, 8)),
    scenario("sleep", "too_few_workers", "workers that sleep",
             lambda u, i: "--workers 2 --sleep-ms %.1f" % u(10, 15)),
    scenario("ipc_numpy", "ipc_bound", "large NumPy batches",
             lambda u, i: "--workers 2 --numpy --tensor-kb %d" % i(16000, 24000),
             env={"PT_SIM_H2D_GBPS": "100"}),
    scenario("ipc_tensors", "ipc_bound", "many tensors per batch",
             lambda u, i: "--workers 2 --parts %d --tensor-kb 2000 "
             "--kernel-us 60" % i(40, 64), env={"PT_SIM_H2D_GBPS": "100"}),
    # ---- one worker, one file
    scenario("slow1of3", "slow_worker", "one worker computes more",
             lambda u, i: "--workers 3 --cpu-ms 4 --slow %d:%.1f" % (
                 i(0, 2), u(5, 7))),
    scenario("slow1of4_sleep", "slow_worker", "one worker sleeps more",
             lambda u, i: "--workers 4 --sleep-ms 3 --slow %d:%.1f" % (
                 i(0, 3), u(5, 8))),
    scenario("nearly_slow", "cpu_bound", "one worker a little slower",
             lambda u, i: "--workers 2 --cpu-ms %.1f --slow 1:1.2" % u(12, 16)),
    scenario("slow_epoch", "slow_worker", "a worker slow every other epoch",
             lambda u, i: "--workers 3 --persistent --cpu-ms 3 --slow 1:7:1 "
             "--items-per-epoch %d" % i(240, 320)),
    scenario("hung", "hung_worker", "a stopped worker",
             lambda u, i: "--workers 3 --cpu-ms %.1f" % u(4, 7), stop=1,
             roots=("hung_worker",), without="wait steps guilty causes severity"),
    scenario("slow_file", "slow_file", "one file takes above a second",
             lambda u, i: "--workers 2 --cpu-ms 1 --big-every %d --big-mb 34"
             % i(160, 240), slow_disk="auto", rate=(20, 24), kinds=("large", None),
             file="big-34.bin"),
    scenario("slow_file_often", "slow_file", "one file is slow each time",
             lambda u, i: "--workers 2 --cache dropped --file-kb 128 --cpu-ms "
             "%.1f" % u(0.2, 0.6), slow_disk="fuse", rate=(400, 600),
             latency_us=(300, 600), slow_us=(120000, 200000),
             kinds=("slow",), file="sample-00017.jpg"),
    scenario("large_file", "io_bound", "one file is large, and no slower",
             lambda u, i: "--workers 2 --cache dropped --file-kb 128 --cpu-ms "
             "%.1f --big-every 32 --big-mb %d" % (u(0.2, 0.6), i(12, 20)),
             slow_disk="fuse", rate=(60, 80), latency_us=(300, 600),
             file="big-"),
    # ---- health, and its look-alikes
    scenario("gpu_sync", "balanced", "GPU-bound, a sync every step",
             healthy("--loss-item")),
    scenario("gpu_never", "balanced", "GPU-bound, never synchronised",
             healthy("--sync-every 0"), without="busy"),
    scenario("gpu_every_n", "balanced", "GPU-bound, a sync now and then",
             lambda u, i: healthy("--sync-every %d" % i(5, 50))(u, i)),
    scenario("gpu_parts", "balanced", "several pinned copies per batch",
             healthy("--parts 6 --pin")),
    scenario("gpu_vary", "balanced", "step times vary", healthy("--vary 0.5")),
    scenario("hidden_prefetch", "balanced", "slow batches behind prefetch",
             lambda u, i: "--workers 2 --prefetch 8 --cpu-ms 2 --kernel-us %d "
             "--heavy-share 0.02 --heavy-factor %.1f" % (u(500, 700), u(15, 25))),
    scenario("hidden_queue", "balanced", "waits behind queued GPU work",
             lambda u, i: "--workers 1 --cpu-ms %.1f --kernel-us 650 "
             "--sync-every 40" % u(4, 5), env={"PT_SIM_QUEUE": "100000"}),
    scenario("syncs_harmless", "balanced", "many syncs, device never dry long",
             lambda u, i: "--workers 2 --cpu-ms 1 --kernel-us 900 "
             "--items-per-step %d --after-item-us 5" % i(5, 10)),
    scenario("checkpoint_small", "balanced", "a short checkpoint now and then",
             healthy("--launches 20 --checkpoint-every 80 --checkpoint-ms 60")),
    # ---- how much
    scenario("wait_05", "balanced", "5 % data wait",
             share(lambda u: u(0.03, 0.06))),
    scenario("wait_25", "too_few_workers", "25 % data wait",
             share(lambda u: u(0.22, 0.28))),
    scenario("wait_35", "too_few_workers", "35 % data wait",
             share(lambda u: u(0.33, 0.38))),
    # ---- forms of the loop
    scenario("never_cpu", "cpu_bound", "starving, never synchronised",
             cpu2("--sync-every 0")),
    scenario("every_n_cpu", "cpu_bound", "starving, a sync every 20 steps",
             cpu2("--sync-every 20")),
    scenario("parts_cpu", "cpu_bound", "several copies per batch",
             cpu2("--parts 5")),
    scenario("accum", "cpu_bound", "gradient accumulation",
             lambda u, i: cpu2("--micro %d" % i(2, 5))(u, i)),
    scenario("accum_gpu", "balanced", "gradient accumulation, GPU-bound",
             healthy("--micro 4")),
    scenario("group", "cpu_bound", "micro-batches fetched before computing",
             lambda u, i: cpu2("--loop group --micro %d" % i(2, 4))(u, i)),
    scenario("side", "cpu_bound", "prefetch on a side stream",
             cpu2("--loop side --pin")),
    scenario("side_gpu", "balanced", "side stream, GPU-bound",
             healthy("--loop side --pin --sync-every 10")),
    scenario("ahead", "cpu_bound", "fetches ahead", cpu2("--loop ahead")),
    scenario("thread", "cpu_bound", "backward from a second thread",
             cpu2("--loop thread")),
    scenario("validate", "cpu_bound", "epochs and validation",
             lambda u, i: cpu2("--validate 12 --items-per-epoch %d"
                               % i(200, 300))(u, i)),
    scenario("two_loaders", "cpu_bound", "two loaders",
             cpu2("--two-loaders")),
    scenario("infer", "cpu_bound", "inference loop", cpu2("--loop infer")),
    scenario("infer_gpu", "balanced", "inference loop, GPU-bound",
             healthy("--loop infer --launches 60")),
    scenario("pin", "cpu_bound", "pin thread", cpu2("--pin")),
    scenario("numpy", "cpu_bound", "NumPy batches", cpu2("--numpy")),
    scenario("fs_sharing", "cpu_bound", "file_system sharing",
             cpu2("--sharing file_system")),
    # ---- not the data
    scenario("transfer", "transfer_bound", "slow pageable copies",
             lambda u, i: "--workers 2 --tensor-kb %d" % i(5000, 8000),
             env={"PT_SIM_H2D_GBPS": "0.5"}),
    scenario("sync", "sync_bound", "the device runs dry after syncs",
             lambda u, i: "--workers 2 --cpu-ms 1 --launches 10 --kernel-us 400 "
             "--items-per-step %d --after-item-us %d" % (i(6, 10), i(700, 1200))),
    scenario("launch", "launch_bound", "tiny kernels from a slow host",
             lambda u, i: "--workers 2 --cpu-ms 1 --launches 200 --kernel-us 20 "
             "--host-us %d --sync-every 20" % i(60, 100)),
    scenario("checkpoint", "checkpoint_stall", "long checkpoints",
             lambda u, i: "--workers 2 --cpu-ms 1 --checkpoint-every 40 "
             "--checkpoint-ms %d" % i(250, 400)),
    scenario("leak", "balanced", "host memory grows",
             healthy("--leak-kb 1500"),
             also=("host_memory_growth",)),
    scenario("device_leak", "balanced", "device memory grows",
             healthy("--device-leak-kb 2048"),
             also=("gpu_memory_growth",)),
    scenario("first_batch", "cpu_bound", "workers warm up in each epoch",
             lambda u, i: "--workers 2 --cpu-ms 3 --warm-ms %d "
             "--items-per-epoch %d" % (i(300, 500), i(400, 500)),
             # a step behind a restart begins with the end of the old workers
             also=("slow_first_batch",), without="root causes severity steps"),
    scenario("unstable", "cpu_bound", "a few items cost far more",
             lambda u, i: "--workers 2 --prefetch 2 --cpu-ms 1.5 "
             "--heavy-share 0.01 --heavy-factor %d" % i(100, 150),
             also=("unstable_steps",)),
    scenario("no_demand", "no_demand", "a server without requests",
             plain("--serve"), ask_ms=(20, 40),
             without="wait steps guilty causes severity"),
    scenario("straggler", "rank_straggler", "two ranks, one waits",
             lambda u, i: "--ranks 2 --workers 1 --cpu-ms 1 --rank-factor %d"
             % i(10, 14), roots=("rank_straggler",),
             without="wait steps guilty causes severity busy"),
    scenario("ranks_even", "balanced", "two ranks in step",
             lambda u, i: "--ranks 2 --workers 1 --cpu-ms 1 --kernel-us 600",
             without="wait steps guilty causes severity busy"),
]

C = [
    scenario("c_cpu", "cpu_bound", "C job, two CPU-bound workers",
             lambda u, i: "--workers 2 --item-cpu-us %d" % i(700, 1200),
             program="simjob"),
    scenario("c_threads", "cpu_bound", "C job, a pool of loader threads",
             lambda u, i: "--workers 2 --threads --item-cpu-us %d"
             % i(700, 1200), program="simjob", without="guilty"),
    scenario("c_threads_gpu", "balanced", "C job, threads that keep up",
             lambda u, i: "--workers 2 --threads --item-cpu-us %d "
             "--kernel-us 1500" % i(50, 150), program="simjob",
             # a queue of threads that is never empty shows no waiting
             without="guilty wait"),
    scenario("c_sleep", "too_few_workers", "C job, workers that sleep",
             lambda u, i: "--workers 3 --item-cpu-us 0 --item-sleep-us %d"
             % i(800, 1200), program="simjob"),
    scenario("c_disk", "io_bound", "C job on a slow disk",
             lambda u, i: "--workers 2 --items 8 --item-cpu-us 0 --cold "
             "--files 64", program="simjob", slow_disk="auto"),
    scenario("c_slow", "slow_worker", "C job, one slow worker",
             lambda u, i: "--workers 3 --item-cpu-us 150 --slow-worker %d:%.1f"
             % (i(0, 2), u(5, 8)), program="simjob"),
    scenario("c_quota", "cpu_oversubscribed", "C job, workers in CPU quotas",
             lambda u, i: "--workers 2 --item-cpu-us %d" % i(700, 1200),
             program="simjob", quota=True),
    scenario("c_gpu", "balanced", "C job, GPU-bound, a sync every 10 steps",
             lambda u, i: "--workers 2 --item-cpu-us %d --kernel-us 1000 "
             "--sync-every 10" % i(50, 150), program="simjob"),
]

SCENARIOS = TORCH + C
