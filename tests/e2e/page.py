#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The HTML page of a live trace: its figures are those of the JSON that was written
beside it; the recording gives the same timeline; and the GPU lane says idle, for
certain, only when the device's own log says so. The workers' lanes know the pids of
the job's log.

    page.py

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import base64
import html.parser
import json
import os
import subprocess
import sys
import tempfile

from held import traced

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
CUDA = os.path.abspath(os.path.join(BUILD, "sim/cuda"))
SIMJOB = os.path.join(BUILD, "sim/simjob")
JOB = ["--seconds", "5", "--hold", "--api", "over", "--workers", "2", "--item-cpu-us", "300",
       "--launches", "20", "--kernel-us", "100"]
NEAR_NS = 20000  # two clocks, on a machine that does other things too
results = []


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name,
                       "" if good else ": " + str(detail)[:600]), flush=True)
    return good


class Blocks(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.blocks, self.at = {}, None
        with open(path, encoding="utf-8") as f:
            self.feed(f.read())

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if tag == "script" and a.get("type") == "application/json":
            self.at = a["id"]
            self.blocks[self.at] = ""

    def handle_endtag(self, tag):
        self.at = None if tag == "script" else self.at

    def handle_data(self, data):
        if self.at:
            self.blocks[self.at] += data


def pieces(packed):
    """(begin us, end us, category or None where it is mixed) of a lane."""
    b, i, at = base64.b64decode(packed), 0, 0
    while i < len(b):
        n = shift = 0
        while True:
            n |= (b[i] & 127) << shift
            shift += 7
            i += 1
            if b[i - 1] < 128:
                break
        c, i = b[i], i + 1
        if c >= 128:
            i += 2 * (c - 128)
        yield at, at + n, c if c < 128 else None
        at += n


def device_busy(path):
    """The device's busy intervals, merged, in monotonic ns."""
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            v = line.split(",")
            if v[0] in ("kernel", "h2d", "d2h", "d2d", "memset"):
                rows.append((int(v[3]), int(v[4])))
    out = []
    for a, z in sorted(rows):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], z)
        else:
            out.append([a, z])
    return out


def overlap(spans, busy):
    """Time in both; spans and busy in order."""
    total, k = 0, 0
    for a, z in spans:
        while k < len(busy) and busy[k][1] <= a:
            k += 1
        j = k
        while j < len(busy) and busy[j][0] < z:
            total += min(z, busy[j][1]) - max(a, busy[j][0])
            j += 1
    return total


def trace(tmp):
    log = os.path.join(tmp, "device.csv")
    names = {k: os.path.join(tmp, k) for k in ("page", "json", "rec", "again", "truth")}
    with subprocess.Popen([SIMJOB] + JOB + ["--truth", names["truth"]], stdin=subprocess.PIPE,
                          text=True, stdout=subprocess.DEVNULL, env=dict(os.environ, PT_SIM_LOG=log,
                                   LD_LIBRARY_PATH=CUDA)) as job:
        try:
            done = traced(job, [PIPETRACE, "-p", str(job.pid), "-d", "3", "--html",
                                names["page"], "--json", names["json"], "-o", names["rec"],
                                "--cupti"], 60)
            job.wait(30)
        finally:
            job.kill()
    ok("trace with --html", done.returncode == 0, done.stderr)
    done = subprocess.run([PIPETRACE, "export", names["rec"], "--format", "html", "-o",
                           names["again"]], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=60, check=False)
    ok("export --format html", done.returncode == 0, done.stderr)
    return names, log


def check_device(line, doc, busy):
    lane = next((l for l in line["lanes"] if l["kind"] == "gpu"), None)
    if not ok("a lane of the GPU", lane):
        return
    names, begin = line["categories"], doc["capture"]["begin_ns"]
    sure, n = [], 0
    for a, z, c in pieces(lane["detail"]):
        if c is not None and names[c] in ("gpu_idle", "gpu_starved"):
            sure.append((begin + a * 1000, begin + z * 1000))
            n += z - a
    wrong = overlap(sure, busy)
    allowed = 2 * NEAR_NS * len(sure)
    ok("certainly idle only when the device is", n > 10000 and wrong <= allowed,
       (n, wrong, allowed))
    # ... and the check can fail: a lane that is half a step late is caught
    late = [(a + 5000000, z + 5000000) for a, z in sure]
    ok("a shifted lane is noticed", overlap(late, busy) > allowed, overlap(late, busy))


def main():
    if os.geteuid():
        print("tracing needs root")
        return 77
    with tempfile.TemporaryDirectory(prefix="pipetrace-page-") as tmp:
        names, log = trace(tmp)
        live, again = Blocks(names["page"]).blocks, Blocks(names["again"]).blocks
        with open(names["json"], encoding="utf-8") as f:
            doc = json.load(f)
        ok("the report is that of --json", json.loads(live["report"]) == doc)
        ok("the recording gives the same timeline", live["timeline"] == again["timeline"])
        line = json.loads(live["timeline"])
        check_device(line, doc, device_busy(log))
        with open(names["truth"], encoding="utf-8") as f:
            pids = {w for l in f for w in json.loads(l).get("workers", [])}
        lanes = {l["pid"] for l in line["lanes"] if l["kind"] == "thread" and
                 l["role"] == "loader"}
        ok("a lane for each worker of the log", len(pids) == 2 and lanes == pids, (lanes, pids))
        ok("mode 0600", os.stat(names["page"]).st_mode & 0o777 == 0o600)
    bad = results.count(False)
    print("%d passed, %d failed, 0 skipped" % (len(results) - bad, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
