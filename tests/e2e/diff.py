#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`pipetrace diff` on captures of a real PyTorch job: one worker against two must
differ by what the job's own log says, the same job twice must not.

    diff.py [-d SEC] [--keep DIR]

The loader sleeps instead of computing, so that other work on the machine changes
little. What is said is compared with the jobs' own logs; where these were disturbed, by
the kernel's pressure figures, that is skipped by name. Needs root, python3-torch and a
build. Ends with "N passed, N failed, N skipped".
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import truth as truth_log
from badinput_tools import LIBCUDART, PIPETRACE, TOP, run

sys.path.insert(0, os.path.join(TOP, "tests"))
import noise  # noqa: E402

PYTHON = "/usr/bin/python3"  # Debian's, which sees python3-torch
JOB = os.path.join(TOP, "tests/e2e/torch_job.py")
CHECKER = os.path.join(TOP, "tests/unit/schema_check.py")
BATCH = 4
# 60 ms of sleep per batch and worker, 10 ms of GPU per step.
LOAD = ["--batch-size", str(BATCH), "--sleep-ms", "15", "--jitter", "0.2"]
READY_S = 60
NEAR = 0.02    # of the log's ratio
SURE = 2       # half widths of a 95 % interval: chance goes farther once in 10,000
results, skipped = [], []


def timed(noisy, name, good, detail=""):
    """What holds of jobs that nobody disturbed: else it is skipped."""
    if not good and noisy:
        skipped.append(name)
        print("ok %s # SKIP %s" % (name, noisy), flush=True)
        return
    ok(name, good, detail)


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + detail),
          flush=True)
    return good


def end(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def start_job(stem, workers, seed, data):
    with open(stem + ".out", "wb") as out, open(stem + ".joberr", "wb") as err:
        job = subprocess.Popen(
            [PYTHON, JOB, "--truth", stem + ".truth.jsonl", "--cudart", LIBCUDART,
             "--data", data, "--seed", str(seed), "--die-with-parent", "--seconds",
             "150", "--workers", str(workers)] + LOAD,
            stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    limit = time.monotonic() + READY_S
    while time.monotonic() < limit and job.poll() is None:
        with open(stem + ".out", encoding="utf-8") as f:
            if f.read().startswith("READY"):
                return job
        time.sleep(0.1)
    end(job)
    with open(stem + ".joberr", encoding="utf-8", errors="replace") as f:
        raise RuntimeError("the job did not start: " + f.read()[-300:])


def capture(directory, name, workers, seed, seconds, labels):
    """Trace a job of its own; the path without its ending."""
    stem = os.path.join(directory, name)
    job = start_job(stem, workers, seed, os.path.join(TOP, "build/e2e/data/plain"))
    try:
        time.sleep(1)
        args = ["-p", str(job.pid), "-d", str(seconds), "--json", stem + ".json",
                "--print-steps", "100000", "--raw-stream", stem + ".raw"]
        for label in labels:
            args += ["--label", label]
        done = run(args, limit=seconds + 30)
    finally:
        end(job)
    if done.status != 0:
        raise RuntimeError("pipetrace: " + done.describe())
    return stem


def true_period_ms(stem):
    """Mean step of the job in the captured window, by its own log."""
    with open(stem + ".json", encoding="utf-8") as f:
        c = json.load(f)["capture"]
    log = truth_log.Truth(stem + ".truth.jsonl", c["begin_ns"], c["end_ns"])
    begins = [s["wait_begin"] for s in log.steps if s["wait_begin"] >= c["begin_ns"]]
    return (begins[-1] - begins[0]) / (len(begins) - 1) / 1e6


def compare(*args):
    """(status, document) of `pipetrace diff --json -`."""
    r = run(["diff", "--json", "-"] + list(args))
    try:
        return r.status, json.loads(r.out)
    except ValueError:
        raise RuntimeError("diff %s: %s" % (" ".join(args), r.describe())) from None


def check_different(one, two, noisy):
    status, d = compare(one + ".json", two + ".json")
    c = d["comparisons"][0]
    s = c["speedup"]
    truth = true_period_ms(one) / true_period_ms(two)
    told = "%.3f (%.3f to %.3f), by the log %.3f" % (s["value"], s["low"], s["high"], truth)
    print("# one worker against two: " + told)
    ok("two captures are compared", status == 0, told)
    timed(noisy, "one and two workers differ", c["result"] == "faster" and
          c["significant"], told)
    timed(noisy, "the speed-up is what the job's log says",
          abs(s["value"] / truth - 1) < NEAR, told)
    ok("and lies in its interval", s["low"] < s["value"] < s["high"], told)
    ok("the changed setting is named", {"name": "loader.workers", "base": "1", "other": "2"}
       in c["settings"], str(c["settings"]))
    ok("the labels are the names", [i["name"] for i in d["inputs"]] ==
       ["workers=1 run=a", "workers=2 run=b"], str([i["name"] for i in d["inputs"]]))
    parts = sum(c["parts_ms_change"].values())
    ok("the parts sum to the change of the step", abs(parts - c["step_ms_change"]) < 0.01,
       "%f, %f" % (parts, c["step_ms_change"]))
    timed(noisy, "most of the change is data wait",
          c["parts_ms_change"]["data_wait"] < 0.8 * c["step_ms_change"] < 0,
          str(c["parts_ms_change"]))
    timed(noisy, "GPU idle is lower", c["gpu_idle"] == "lower", str(
        [i["gpu_idle"] for i in d["inputs"]]))
    text = run(["diff", one + ".json", two + ".json"])
    ok("the text says the same", text.status == 0 and not text.err and
       ("B is faster" in text.out) == (c["result"] == "faster") and
       ("more than noise" in text.out) == bool(c["significant"]), text.describe())
    return d


def check_same(directory, one, seconds):
    """Another capture. A fair test at 95 % errs once in twenty, so
    that it finds a difference is no error; one that is twice as sure, or that the
    jobs' logs do not have, is."""
    watch = noise.Watch()
    other = capture(directory, "again", 1, 11, seconds, ["workers=1", "run=again"])
    noisy = noise.too_noisy(watch.share())
    status, d = compare(one + ".json", other + ".json")
    c = d["comparisons"][0]
    s = c["speedup"]
    truth = true_period_ms(one) / true_period_ms(other)
    told = "%s, %.3f (%.3f to %.3f), by the log %.3f" % (
        c["result"], s["value"], s["low"], s["high"], truth)
    print("# the same job twice: " + told)
    ok("the same job twice is compared", status == 0, told)
    timed(noisy, "the same job twice: the ratio is the logs'",
          abs(s["value"] / truth - 1) < NEAR, told)
    ok("the same job twice: the word is the interval's", (c["result"] == "no_difference") ==
       (s["low"] <= 1 <= s["high"]), told)
    far = SURE * (s["high"] - s["low"]) / 2
    if abs(truth - 1) > far:  # not the same: by the clock of the job itself
        noisy = noisy or "by their own logs the two runs differ: %.3f" % truth
    timed(noisy, "the same job twice does not differ", abs(s["value"] - 1) <= far, told)
    return other


def check_gate(one, two, noisy):
    r = run(["diff", two + ".json", one + ".json", "--fail-on-regression", "10"])
    timed(noisy, "a regression: status 3", r.status == 3, r.describe())
    r = run(["diff", one + ".json", two + ".json", "--fail-on-regression", "10"])
    ok("an improvement: status 0", r.status == 0, r.describe())


def check_streams(one, two, noisy):
    status, d = compare(one + ".raw", one + ".json")
    s = d["comparisons"][0]
    # a report's steps are rounded to the microsecond
    ok("a stream and its own report are the same", status == 0 and
       abs(s["speedup"]["value"] - 1) < 1e-5 and s["result"] == "no_difference" and
       [i["kind"] for i in d["inputs"]] == ["recording", "report"], str(s))
    status, d = compare(one + ".raw", two + ".raw")
    ok("streams are compared", status == 0, str(d["comparisons"][0]))
    timed(noisy, "streams tell the difference", d["comparisons"][0]["result"] == "faster",
          str(d["comparisons"][0]))


def check_ranking(directory, one, two, again, noisy):
    status, d = compare(one + ".json", again + ".json", two + ".json", "--batch-size",
                        str(BATCH))
    ranks = d["ranking"]
    ok("the ranking is by samples/s", status == 0 and d["by"] == "samples_per_second" and
       abs(ranks[0]["value"] - BATCH * d["inputs"][2]["steps_per_second"]) < 1e-3, str(ranks))
    timed(noisy, "two workers are best, one worker slower", ranks[0]["input"] == 2 and
          all(r["against_best"] == "slower" for r in ranks[1:]), str(ranks))
    path = os.path.join(directory, "ranking.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(d, f)
    done = subprocess.run([PYTHON, CHECKER, path, one + ".json"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    if done.returncode == 77:
        skipped.append("the schema holds")
        print("ok the schema holds # SKIP no python3-jsonschema")
        return
    ok("the schema holds", done.returncode == 0, done.stdout.decode()[-400:])
    text = run(["diff", one + ".json", again + ".json", two + ".json"])
    ok("the ranking is printed", text.status == 0 and "Ranking" in text.out, text.describe())


def check_without_steps(directory, one, two):
    paths = []
    for stem in one, two:
        with open(stem + ".json", encoding="utf-8") as f:
            report = json.load(f)
        del report["steps"]["list"], report["steps"]["periods_ms"]
        paths.append(os.path.join(directory, os.path.basename(stem) + "-nolist.json"))
        with open(paths[-1], "w", encoding="utf-8") as f:
            json.dump(report, f)
    status, d = compare(*paths)
    c = d["comparisons"][0]
    ok("without steps: means only, and it says so", status == 0 and
       c["speedup"]["value"] > 1 and c["speedup"]["low"] is None and
       c["significant"] is None and "no list of steps" in c["untested"], str(c))
    r = run(["diff"] + paths + ["--fail-on-regression", "10"])
    ok("without steps: the gate does not pass", r.status == 1 and
       "cannot tell" in r.err, r.describe())


def check_refusals(directory, one):
    """One plain sentence and the right status."""
    good = one + ".json"
    bad = os.path.join(directory, "bad")
    fifo = os.path.join(directory, "fifo")
    os.mkfifo(fifo)
    for name, args, status in (
            ("no file", [], 2), ("one file", [good], 2), ("27 files", [good] * 27, 2),
            ("a bad percentage", [good, good, "--fail-on-regression", "x"], 2),
            ("a missing file", [good, bad], 1), ("a directory", [good, directory], 1),
            ("a fifo that nobody writes", [good, fifo], 1), ("a device", ["/dev/zero", good], 1),
            ("no JSON", [good, one + ".truth.jsonl"], 1)):
        r = run(["diff"] + args)
        ok("refused: " + name, r.status == status and len(r.lines) == 1 and not r.out,
           r.describe())
    for name, content in (("an empty file", b""), ("other JSON", b'{"a": [1]}'),
                          ("a cut report", open(good, "rb").read()[:5000]),
                          ("a cut stream head", open(one + ".raw", "rb").read(11)),
                          ("deep nesting", b"[" * 200000)):
        with open(bad, "wb") as f:
            f.write(content)
        r = run(["diff", good, bad])
        ok("refused: " + name, r.status == 1 and len(r.lines) == 1 and not r.out, r.describe())
    for label in "x", "=x", "a b=c", "a=\n", "a=" + 300 * "x":
        r = run(["report", "--raw-stream", one + ".raw", "--label", label])
        ok("refused: label %r" % label[:20], r.status == 2 and len(r.lines) == 1, r.describe())


def missing():
    if os.geteuid() != 0:
        return "needs root"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "this kernel has no BTF"
    probe = subprocess.run([PYTHON, "-c", "import torch, PIL, numpy"], check=False,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=60)
    if probe.returncode:
        return "python3-torch, python3-pil or python3-numpy is not installed"
    return None


def check_all(directory, seconds):
    watch = noise.Watch()
    one = capture(directory, "one", 1, 1, seconds, ["workers=1", "run=a"])
    two = capture(directory, "two", 2, 2, seconds, ["workers=2", "run=b"])
    noisy = noise.too_noisy(watch.share())
    check_different(one, two, noisy)
    again = check_same(directory, one, seconds)
    check_gate(one, two, noisy)
    check_streams(one, two, noisy)
    check_ranking(directory, one, two, again, noisy or noise.too_noisy(watch.share()))
    check_without_steps(directory, one, two)
    check_refusals(directory, one)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("-d", "--duration", type=int, default=10, metavar="SEC")
    p.add_argument("--keep", metavar="DIR", help="leave the captures there")
    options = p.parse_args()
    reason = missing()
    if reason:
        print(reason)
        return 77
    if not os.path.exists(PIPETRACE) or not os.path.exists(LIBCUDART):
        print("not ok diff: not built, run make")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = options.keep or tempfile.mkdtemp(prefix="pipetrace-diff-")
    os.makedirs(directory, exist_ok=True)
    try:
        check_all(directory, options.duration)
    except (RuntimeError, KeyError, OSError, subprocess.TimeoutExpired) as e:
        ok("runs to its end", False, repr(e)[:800])
    finally:
        if not options.keep:
            shutil.rmtree(directory)
    failed = results.count(False)
    print("%d passed, %d failed, %d skipped" % (len(results) - failed, failed, len(skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
