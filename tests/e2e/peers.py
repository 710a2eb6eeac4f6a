#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Network peers, on a real PyTorch DataLoader that reads HTTP ranges from an
object store on loopback (http_job.py, http_server.py).

The store counts what it sent by the kernel's count of each connection; the job
clocks its requests, and takes what it ran and what it queued for a core out of
them by its own accounting. With those the report must agree: address and port,
connections, bytes (exactly), time waited, time to the first byte, the verdict
and which kind of slow it names.

    peers.py [NAME...]

Needs root and a build. A run that another load on the machine has spoiled is done
once more, and says so. If that is spoiled, too, the case is skipped by name. Ends
with "N passed, N failed, N skipped".
"""
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests"))
import noise  # noqa: E402

HERE = os.path.join(TOP, "tests/e2e")
PIPETRACE = os.path.join(os.environ.get("BUILD", os.path.join(TOP, "build")), "pipetrace")
PYTHON = "/usr/bin/python3"  # the one that has the distribution's torch
UNNAMED = 0.05  # of the time that is charged to the network
LIMIT = 100  # s, for each traced job
# What a request's own clock reads and a wait does not cover, or the reverse:
# from the clock to the system call and back.
EDGE_MS = 0.15

Case = collections.namedtuple("Case", "name server job word host reasons")
LATE = ["--latency-ms", "8"]
SLOW = ["--rate", "4e6"]
CASES = [
    Case("late", LATE, [], "answer", "127.0.0.1", {"network_bound"}),
    Case("late_new", LATE, ["--way", "new"], "answer", "127.0.0.1", {"network_bound"}),
    Case("late_tls", LATE, ["--tls"], "answer", "127.0.0.1", {"network_bound"}),
    Case("late_v6", LATE, [], "answer", "::1", {"network_bound"}),
    Case("slow", SLOW, ["--kib", "96"], "send", "127.0.0.1", {"network_bound"}),
    Case("slow_new", SLOW, ["--way", "new", "--kib", "96"], "send", "127.0.0.1",
         {"network_bound"}),
    Case("threads", ["--latency-ms", "25"], ["--way", "threads"], "answer", "127.0.0.1", None),
    Case("asyncio", ["--latency-ms", "25"], ["--way", "asyncio", "--steps", "160"],
         "answer", "127.0.0.1", {"network_bound"}),
    Case("garbage", ["--garbage"], ["--hostile"], None, "127.0.0.1", None),
    Case("flood", LATE, ["--flood", "5000"], None, "127.0.0.1", None),
]


class Noisy(Exception):
    """The machine, not the tracer: the job itself was held up."""


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def certificate(tmp):
    key, cert = os.path.join(tmp, "key.pem"), os.path.join(tmp, "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                    "-out", cert, "-days", "2", "-subj", "/CN=localhost"], check=True,
                   stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    return cert, key


def run(case, tmp):
    log, out = os.path.join(tmp, "job.log"), os.path.join(tmp, "r.json")
    sent = os.path.join(tmp, "server.log")
    server, job = list(case.server), list(case.job)
    if "--tls" in job:
        pair = certificate(tmp)
        server += ["--tls", *pair]
        job[job.index("--tls"):job.index("--tls") + 1] = ["--tls", pair[0]]
    store = subprocess.Popen([PYTHON, os.path.join(HERE, "http_server.py"), sent, "--bind",
                              case.host, *server], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True)
    try:
        port = int(store.stdout.readline())
        t = subprocess.run([PIPETRACE, "--json", out, "--", PYTHON,
                            os.path.join(HERE, "http_job.py"), log, str(port), "--host",
                            case.host, *job], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, timeout=LIMIT, check=False)
        if t.returncode:
            raise ValueError("pipetrace %d: %s" % (t.returncode, t.stderr[-300:]))
        with open(out, encoding="utf-8") as f:
            report = json.load(f)
        settle(sent, report, port)
    finally:
        store.kill()
        store.wait()
        store.stdout.close()
    return report, port, lines(log), lines(sent)


def settle(sent, report, port):
    """The store's threads write their last lines; no longer than a while."""
    want = sum(p["connections"] for p in report["peers"] if p["port"] == port)
    for _ in range(50):
        if len(lines(sent)) >= want:
            return
        time.sleep(0.1)


def peer_of(case, report, port):
    rows = [p for p in report["peers"] if p["port"] == port]
    if len(rows) != 1 or rows[0]["address"] != case.host or rows[0]["protocol"] != "tcp":
        raise ValueError("the peers: %r" % report["peers"])
    return rows[0]


def judge_counts(case, p, sent, wrong):
    if p["connections"] != len(sent) or p["opened"] != len(sent):
        wrong.append("%d connections, %d opened, the store had %d" % (
            p["connections"], p["opened"], len(sent)))
    if any(s["sent"] is None for s in sent):
        raise Noisy("the store lost count of a connection")
    true = sum(s["sent"] for s in sent)
    if p["bytes"] != true:
        wrong.append("%d bytes, the store sent %d" % (p["bytes"], true))
    if p["connect_ms"] is None or p["connect_ms"]["count"] != len(sent):
        wrong.append("connect times: %r" % p["connect_ms"])


def edge_ms():
    """EDGE_MS is of machines on which a system call takes 200 ns from Python; some virtual ones
    take several times as long."""
    begin = time.monotonic_ns()
    for _ in range(20000):
        os.getppid()
    return EDGE_MS * min(max((time.monotonic_ns() - begin) / 20000 / 200, 1), 10)


def judge_waits(p, job, wrong):
    """A request's time without what its thread ran or queued is what it was
    blocked; the accounting is the scheduler's own."""
    requests = [r for r in job if "request" in r]
    rows = [r for r in job if "batch" in r] if p["certainty"] == "estimated" else requests
    true = sum(r["blocked"] for r in rows) / 1e9
    # A queue that is longer than the waits says more about the machine.
    slack = 0.02 * true + edge_ms() / 1e3 * len(rows)
    if abs(p["wait_s"] - true) > slack:
        wrong.append("waited %.4f s, truth %.4f s, within %.4f" % (p["wait_s"], true, slack))
    firsts = [r["first"] / 1e6 for r in requests if r["first"]]
    if not firsts or p["certainty"] == "estimated":
        return
    # the clock runs on while the thread waits for a core; the first byte does not
    shortest, middle = min(firsts), statistics.median(firsts)
    told = p["first_byte_ms"]
    if not told or not shortest - 2 <= told["p50"] <= middle + EDGE_MS:
        wrong.append("first byte %r, truth %.2f (at least %.2f) ms" % (told, middle, shortest))


def judge_verdict(case, report, port, wrong, times):
    root = report["verdicts"][0]
    name = ("[%s]:%d" if ":" in case.host else "%s:%d") % (case.host, port)
    charged = [c for c in report["data_wait"]["causes"] if c["cause"] == "network"]
    if any(c["what"] not in (name, None, "many short waits") for c in charged):
        wrong.append("network charges: %r" % charged)
    # not to know the peer of a short wait is no wrong answer
    unnamed = sum(c["seconds"] for c in charged if c["what"] is None)
    if unnamed > UNNAMED * sum(c["seconds"] for c in charged):
        times.append("nobody named: %r" % charged)
    if case.reasons is None:
        return
    if root["id"] not in case.reasons:
        share = sum(c["share"] for c in report["data_wait"]["causes"]
                    if c["cause"] in ("run_queue", "throttle"))
        if share > 0.3:
            raise Noisy("the job waited for cores for %.0f %% of its data wait" % (100 * share))
        times.append("verdict %s" % root["id"])
        return
    if root["subject"]["peer"] != name or name not in root["title"]:
        wrong.append("subject %r" % root["subject"])
    # a line of Python may follow
    if not re.search(r" to %s[.;]" % case.word, root["title"]):
        times.append("the kind: %s" % root["title"])


def judge(case, report, port, job, sent):
    """What is wrong; what is wrong of times and what follows from them."""
    wrong, times = [], []
    p = peer_of(case, report, port)
    if report["capture"]["lost"]["total"]:
        wrong.append("records were lost")
    steps = int(case.job[case.job.index("--steps") + 1]) if "--steps" in case.job else 60
    if "--hostile" not in case.job and job[-1]["steps"] != steps:
        wrong.append("the job did %d steps" % job[-1]["steps"])
    judge_counts(case, p, sent, wrong)
    if case.word:
        judge_waits(p, job, times)
        judge_verdict(case, report, port, wrong, times)
    return wrong, times


def attempt(case):
    with tempfile.TemporaryDirectory(prefix="pipetrace-peers-") as tmp:
        watch = noise.Watch()
        try:
            wrong, times = judge(case, *run(case, tmp))
            noisy = noise.too_noisy(watch.share())
            if times and not wrong and noisy:
                raise Noisy("%s: %s" % (noisy, "; ".join(times)))
            return wrong + times, False
        except Noisy as e:
            return [str(e)], True
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
            return [repr(e)], False


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.path.exists(PIPETRACE):
        print("needs a build")
        return 77
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL,
                      check=False).returncode:
        print("needs python3-torch")
        return 77
    passed = failed = skipped = 0
    for c in [c for c in CASES if len(sys.argv) < 2 or c.name in sys.argv[1:]]:
        wrong, noisy = attempt(c)
        if noisy:
            print("# %s: %s; once more" % (c.name, wrong[0]), flush=True)
            wrong, noisy = attempt(c)
        if noisy:
            skipped += 1
            print("ok %s # SKIP %s" % (c.name, wrong[0]), flush=True)
            continue
        passed, failed = passed + (not wrong), failed + bool(wrong)
        print("%s %s%s" % ("not ok" if wrong else "ok", c.name,
                           ": " + "; ".join(wrong) if wrong else ""), flush=True)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
