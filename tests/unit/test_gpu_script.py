#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What judges GPU runs, without a GPU: tests/gpu (the profiler's trace, the
comparison, the table, the probes' parsing) and tests/e2e/gpubusy.py (the device's
log). The traces are made up in the profiler's documented form."""

import json
import os
import struct
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(TOP, "tests/gpu"), os.path.join(TOP, "tests/e2e")]
import facts  # noqa: E402
import gpu_judge  # noqa: E402
import gpu_truth  # noqa: E402
import gpubusy  # noqa: E402
import loops  # noqa: E402

BASE = 5000000000000    # CLOCK_MONOTONIC at the trace's zero, ns
MS = 1000000


def x(cat, name, at_ms, ms, **args):
    """One complete event; times of the trace are micro-seconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1,
            "ts": at_ms * 1000.0, "dur": ms * 1000.0, "args": args}


def mark(at_ms, late_us=0.0):
    """Its name holds the time that was read `late_us` before it was written."""
    return x("user_annotation", "pt_mark %d" % (BASE + at_ms * MS),
             at_ms + late_us / 1000, 0.01)


def sample(unit=1.0):
    """100 ms: kernels 10..20 and 15..30 on two streams, a copy 50..60, a memset
    70..71; their calls a little before. As CUDA 12 with PyTorch 2 writes it."""
    return [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        mark(1, 90), mark(1.2, 3), mark(99, 5), mark(99.5, 40),
        x("cpu_op", "aten::add_", 9.8, 0.1),
        x("cuda_runtime", "cudaLaunchKernel", 9.9, 0.01, correlation=1),
        x("kernel", "void vectorized_elementwise_kernel<4>(...)", 10, 10 * unit,
          correlation=1, device=0, stream=7),
        x("cuda_driver", "cuLaunchKernelEx", 10.1, 0.01, correlation=2),
        x("kernel", "triton_poi_0", 15, 15, correlation=2, device=0, stream=20),
        x("cuda_runtime", "cudaMemcpyAsync", 49.5, 10, correlation=3),
        x("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 50, 10, correlation=3,
          bytes=1 << 20),
        x("gpu_memset", "Memset (Device)", 70, 1, bytes=512),
        x("gpu_user_annotation", "ProfilerStep#1", 0, 100),
        {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 9900, "cat": "ac2g",
         "name": "ac2g"},
    ]


def report(share, hard, likely, begin=BASE, end=BASE + 100 * MS, **counts):
    g = {"busy": {"share": share, "hard": hard, "likely": likely,
                  "certainty": counts.get("certainty", "estimated")},
         "kernels": counts.get("kernels", 2),
         "copies": {"h2d": counts.get("h2d", 1), "d2h": 0,
                    "bytes": counts.get("bytes", 1 << 20)}}
    return {"capture": {"begin_ns": begin, "end_ns": end, "limits": counts.get("limits", []),
                        "lost": {"total": counts.get("lost", 0)}},
            "gpu": [g, {"busy": {}, "kernels": 0}], "verdicts": [{"id": "balanced"}]}


class Truth(unittest.TestCase):
    def test_times(self):
        t = gpu_truth.Truth(sample())
        # the nearest mark was written 3 us late
        self.assertEqual(t.offset, BASE - 3000)
        self.assertAlmostEqual(t.busy(BASE, BASE + 100 * MS), 0.31, 4)
        self.assertAlmostEqual(t.busy(BASE + 20 * MS, BASE + 60 * MS), 0.5, 3)
        self.assertEqual(gpu_truth.count(t.kernels, BASE, BASE + 100 * MS), (2, 0))
        # a kernel belongs to the moment of its call
        self.assertEqual(gpu_truth.count(t.kernels, BASE, BASE + 10 * MS, 0), (1, 0))
        self.assertEqual([(k, b) for _, k, b in t.copies], [("h2d", 1 << 20)])

    def test_old_names(self):
        old = [dict(e, cat={"kernel": "Kernel", "gpu_memcpy": "Memcpy",
                            "gpu_memset": "Memset", "cuda_runtime": "Runtime"}
                    .get(e.get("cat"), e.get("cat"))) for e in sample()]
        self.assertAlmostEqual(gpu_truth.Truth(old).busy(BASE, BASE + 100 * MS), 0.31, 4)

    def test_refused(self):
        no_marks = [e for e in sample() if "pt_mark" not in e["name"]]
        no_work = [e for e in sample() if e.get("cat") not in
                   ("kernel", "gpu_memcpy", "gpu_memset")]
        drift = sample() + [mark(98, -5000)]
        for events in (no_marks, no_work, drift, []):
            self.assertRaises(gpu_truth.NoTruth, gpu_truth.Truth, events)
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "t.json")
            for text in ("{", '{"a": 1}', "[1, 2]", '"x"', '{"traceEvents": 3}'):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                self.assertRaises(gpu_truth.NoTruth, gpu_truth.read, path)
            self.assertRaises(gpu_truth.NoTruth, gpu_truth.read, path + ".none")
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"schemaVersion": 1, "traceEvents": sample()}, f)
            self.assertEqual(len(gpu_truth.read(path).spans), 4)


class Judge(unittest.TestCase):
    def setUp(self):
        self.truth = gpu_truth.Truth(sample())

    def wrong(self, *args, **counts):
        return gpu_judge.compare(report(*args, **counts), self.truth)["wrong"]

    def test_right(self):
        row = gpu_judge.compare(report(0.31, [0.2, 0.4], [0.3, 0.32]), self.truth)
        self.assertEqual(row["wrong"], [])
        self.assertEqual((row["kernels"], row["kernels_true"]), (2, 2))
        # no bounds say nothing false
        self.assertEqual(self.wrong(None, None, None), [])

    def test_wrong(self):
        self.assertEqual(self.wrong(0.3, [0.35, 0.5], [0.35, 0.5]),
                         ["busy outside hard", "busy outside likely"])
        self.assertEqual(self.wrong(0.3, [0, 1], [0.2, 0.3]), ["busy outside likely"])
        for what in ({"kernels": 3}, {"kernels": None}, {"h2d": 0}, {"bytes": 5},
                     {"lost": 7}):
            self.assertEqual(len(self.wrong(0.31, [0, 1], [0.3, 0.32], **what)), 1, what)

    def test_edges(self):
        # the call at 9.9 ms is within a millisecond of the window's end
        end = {"begin": BASE, "end": BASE + 9 * MS + 950000, "h2d": 0, "bytes": 0}
        for kernels, n in ((0, 0), (1, 0), (2, 0), (4, 1)):
            got = self.wrong(0.0, [0, 1], [0, 1], kernels=kernels, **end)
            self.assertEqual(len(got), n, (kernels, got))

    def test_cupti(self):
        good = report(0.31, [0.3, 0.32], [0.31, 0.31], certainty="measured")
        good["gpu"][0]["kernels"] = 1000
        us = 310.0  # of the device's time in one of a hundred steps in 100 ms
        for r, true, steps, n in ((good, 10, 100, 0), (good, 10, 101, 0),
                                  (good, 10, 85, 2), (good, None, 95, 0),
                                  (report(0.5, None, None, certainty="measured"),
                                   None, 100, 1),
                                  (report(0.31, [0.3, 0.32], None), None, 100, 0),
                                  (report(0.31, None, None), None, 100, 1)):
            row = gpu_judge.compare(report(0.31, [0, 1], [0, 1]), self.truth)
            row.update(kernels_per_step=true, busy_us_per_step=us)
            gpu_judge.compare_cupti(row, r, steps)
            self.assertEqual(len(row["wrong"]), n, (true, steps, row["wrong"]))
        row = gpu_judge.compare(report(0.31, [0, 1], [0, 1]), self.truth)
        gpu_judge.compare_cupti(row, report(0.3, None, None, limits=[
            {"what": "gpu_times", "reason": "CUPTI is in use"}]), 9)
        self.assertIn("CUPTI is in use", row["wrong"][0])

    def test_table(self):
        self.assertAlmostEqual(gpu_judge.ratio([(9, 10), (None, 3), (8, 10)])["median"], 0.85)
        self.assertIsNone(gpu_judge.ratio([(None, 1)]))
        row = gpu_judge.compare(report(0.9, [0.8, 1], [0.8, 1]), self.truth)
        lines = gpu_judge.table([dict(row, loop="a", rate=3.0), {"loop": "b"},
                                 {"loop": "c", "skipped": "no time left"}])
        self.assertEqual(len(lines), 4)
        self.assertIn("31.0", lines[1])
        self.assertTrue(lines[1].endswith("busy outside likely"), lines[1])
        self.assertTrue(lines[3].endswith("skipped: no time left"), lines[3])


class Loops(unittest.TestCase):
    def test_between(self):
        self.assertEqual(loops.between([10, 20, 30, 40], 15, 40), (2, None))
        n, rate = loops.between([0, 10 ** 9, 2 * 10 ** 9], 0, 3 * 10 ** 9)
        self.assertEqual((n, rate), (3, 1.0))

    def test_log_becomes_a_trace(self):
        log = ["# pipetrace-sim 1 pid=1\n", "op,stream,submit_ns,...\n",
               "kernel,0,100,200,300,0,1,cudaLaunchKernel\n",
               "host,0,1,2,3,0,1,cudaMemcpyAsync\n",
               "h2d,0,300,400,500,64,1,cudaMemcpyAsync\n",
               "kernel,0,700,700,800,0,1,cudaLaunchKernel\n",
               "host,0,600,600,710,0,1,cudaLaunchKernel\n",
               "kernel,0,9000,9100,9200,0,1,cudaLaunchKernel\n"]
        events = loops.chrome_events(log, 0, 1000)
        self.assertEqual([e["cat"] for e in events],
                         ["kernel", "cuda_runtime", "gpu_memcpy", "cuda_runtime",
                          "kernel", "cuda_runtime"])
        # the call that waited for room began at 600
        self.assertEqual([e["ts"] for e in events if e["cat"] == "cuda_runtime"],
                         [100, 300, 600])
        self.assertEqual(gpu_truth.direction(events[2]["name"]), "h2d")


class Facts(unittest.TestCase):
    def test_maps(self):
        maps = ("7f0-7f1 r-xp 0 08:01 5 /v/nvidia/cuda_runtime/lib/libcudart.so.12\n"
                "7f2-7f3 r-xp 0 08:01 6 /usr/lib/libcuda.so.550.54.15\n"
                "7f4-7f5 r-xp 0 08:01 7 /v/libcudart-d0da41ae.so.11.0\n"
                "7f6-7f7 rw-p 0 00:00 0 [heap]\n"
                "7f8-7f9 r-xp 0 08:01 8 /v/libcudadebugger.so.1\n")
        self.assertEqual(facts.libraries(maps), {
            "libcudart": "/v/nvidia/cuda_runtime/lib/libcudart.so.12",
            "libcuda": "/usr/lib/libcuda.so.550.54.15"})

    def test_symbols(self):
        lib = os.path.join(TOP, "build/sim/cuda/libcuda.so.1")
        if not os.path.exists(lib):
            self.skipTest("no build")
        found = facts.symbol_offsets(lib, ("cuLaunchKernel", "cuNone"))
        self.assertEqual(list(found), ["cuLaunchKernel"])
        with open(lib, "rb") as f:
            f.seek(found["cuLaunchKernel"])
            self.assertIn(f.read(1), (b"\x55", b"\xf3"))   # push rbp, endbr64
        with tempfile.NamedTemporaryFile() as f:
            for data in (b"", b"\x7fELF\x02" + b"\xff" * 80, b"MZ" * 99):
                f.truncate(0)
                f.seek(0)
                f.write(data)
                f.flush()
                self.assertRaises((ValueError, struct.error, OSError, OverflowError),
                                  facts.symbol_offsets, f.name, ("a",))


class GpuBusy(unittest.TestCase):
    """The judge of random jobs finds what is false."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def log(self, name, *ops):
        path = os.path.join(self.dir.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("# pipetrace-sim 1 pid=1\nop,stream,submit_ns,...,device\n")
            for op, a, b, device in ops:
                f.write("%s,0,%d,%d,%d,0,1,cudaLaunchKernel%s\n"
                        % (op, a, a, b, "" if device is None else ",%d" % device))
        return path

    def test_truth(self):
        a = self.log("a", ("kernel", 0, 30, None), ("h2d", 20, 40, None),
                     ("host", 0, 100, None), ("kernel", 90, 200, None))
        b = self.log("b", ("kernel", 50, 60, 0), ("kernel", 0, 100, 1))
        self.assertEqual(gpubusy.truth([a], 10, 110), {0: 0.5})
        self.assertEqual(gpubusy.truth([a, b], 10, 110), {0: 0.6, 1: 0.9})
        with open(a, "a", encoding="utf-8") as f:
            f.write("# lost 3\n")
        self.assertRaises(gpubusy.Broken, gpubusy.truth, [a], 0, 1)

    def meta(self, **more):
        plan = {"set_once": False, "phases": [{"sync": "item", "every": 1}]}
        return dict({"name": "j", "traced": 1, "seeds": [3], "pids": [7],
                     "plans": [plan]}, **more)

    @staticmethod
    def entry(index, hard, likely):
        return {"index": index, "busy": {"hard": hard, "likely": likely, "share": 0.5}}

    def judge(self, entries, meta=None, lost=0, trainer=7):
        log = self.log("x", ("kernel", 0, 50, 0), ("kernel", 0, 20, 1))
        other = self.log("y", ("kernel", 60, 90, 0))
        meta = meta or self.meta()
        r = {"capture": {"begin_ns": 0, "end_ns": 100, "lost": {"total": lost}},
             "target": {"trainer": trainer}, "gpu": entries}
        return gpubusy.judge(meta, r, [log, other][:len(meta["pids"])])

    def test_judge(self):
        right = [self.entry(0, [0.4, 0.6], [0.5, 0.5]), self.entry(1, [0, 1], [0.1, 0.3])]
        v = self.judge(right)
        self.assertTrue(all(d["hard_ok"] and d["likely_ok"] for d in v.values()))
        self.assertAlmostEqual(v[1]["width"], 0.2)
        off = self.judge([self.entry(0, [0.6, 1], [0.6, 1]),
                          self.entry(1, [0, 1], [0.21, 1])])
        self.assertFalse(off[0]["hard_ok"] or off[1]["likely_ok"])
        self.assertTrue(off[1]["hard_ok"])
        for entries in (right[:1], [right[0], self.entry(2, [0, 1], [0, 1])],
                        right + right[:1], []):
            self.assertRaises(gpubusy.Broken, self.judge, entries)
        self.assertRaises(gpubusy.Broken, self.judge, right, lost=1)

    def test_whose_devices(self):
        """The report speaks of one process; the device works for both."""
        meta = self.meta(pids=[7, 8], traced=2)
        meta["plans"] *= 2
        v = self.judge([self.entry(None, [0.7, 0.9], [0.8, 0.8])], meta, trainer=8)
        self.assertEqual((list(v), v[0]["true"], v[0]["hard_ok"]), ([0], 0.8, True))
        # two devices that nobody was seen to choose are one entry, which holds for both
        v = self.judge([self.entry(None, [0.2, 0.5], [0.2, 0.5])])
        self.assertTrue(v[0]["hard_ok"] and v[1]["hard_ok"])
        v = self.judge([self.entry(None, [0.3, 0.5], [0.3, 0.5])])
        self.assertTrue(v[0]["hard_ok"] and not v[1]["hard_ok"])

    def test_unknown_order(self):
        swapped = [self.entry(0, [0.1, 0.3], [0.2, 0.2]),
                   self.entry(1, [0.4, 0.6], [0.5, 0.5])]
        meta = self.meta()
        self.assertFalse(self.judge(swapped, meta)[0]["hard_ok"])
        meta["plans"][0]["set_once"] = True
        v = self.judge(swapped, meta)
        self.assertTrue(all(d["hard_ok"] and d["likely_ok"] for d in v.values()))

    def test_rules(self):
        def results(n, hard=0, likely=0, width=0.05):
            d = {"hard_ok": True, "likely_ok": True, "width": width, "error": 0.0,
                 "measured": True}
            return [(dict(self.meta(), name="job", waited=0.02), {0: dict(d, hard_ok=i >= hard, likely_ok=i >= likely)})
                    for i in range(n)]

        def failed(r, broken=0, cupti=False):
            return gpubusy.summary(r, broken, cupti)[1]

        self.assertEqual(failed(results(200, likely=10)), 0)
        self.assertEqual(failed(results(200, likely=11)), 1)
        self.assertEqual(failed(results(8, likely=1)), 0)
        self.assertEqual(failed(results(8, likely=2)), 1)
        self.assertEqual(failed(results(200, hard=1)), 1)
        self.assertEqual(failed(results(200, width=0.11)), 1)
        self.assertEqual(failed(results(199), broken=1), 1)
        self.assertEqual(failed([]), 1)
        far = results(3)
        self.assertEqual(failed(far, cupti=True), 0)
        far[0][1][0]["error"] = 0.02
        self.assertEqual(failed(far, cupti=True), 1)

    def test_not_measured(self):
        """Excused by noise in both runs, by a neighbour, by a job that never waits."""
        def failed(waited=0.02, first=0.02, traced=1, sync="item", pids=(7,), error=0.3):
            meta = dict(self.meta(pids=list(pids), traced=traced), name="job",
                        waited=waited, waited_first=first)
            meta["plans"][0]["phases"] = [{"sync": sync, "every": 1}]
            meta["seeds"] = list(pids)
            d = {"hard_ok": True, "likely_ok": True, "width": 0.05, "error": 0.0,
                 "measured": True}
            far = dict(d, error=error, measured=False)
            good = (dict(self.meta(), name="job", waited=0.02), {0: d})
            return gpubusy.summary([good, (meta, {0: far})], 0, True)[1]

        self.assertEqual(failed(), 1)
        self.assertEqual(failed(error=0.011), 1)
        self.assertEqual(failed(error=0.009), 0)
        self.assertEqual(failed(waited=0.5), 1)
        self.assertEqual(failed(waited=0.5, first=0.5), 0)
        self.assertEqual(failed(sync="never"), 0)
        self.assertEqual(failed(pids=(7, 8)), 0)


if __name__ == "__main__":
    done = unittest.main(exit=False, verbosity=0).result
    bad = len(done.failures) + len(done.errors)
    for test, why in done.skipped:
        print("ok - %s # SKIP %s" % (test.id(), why))
    print("%d passed, %d failed, %d skipped"
          % (done.testsRun - bad - len(done.skipped), bad, len(done.skipped)))
    sys.exit(1 if bad else 0)
