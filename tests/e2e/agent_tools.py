# SPDX-License-Identifier: BSD-2-Clause
"""What agent.py, agent_limits.py and soak.py share: a live agent, its pages, jobs and
their logs."""
import gzip
import http.server
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import threading
import time
import urllib.request

from badinput_tools import PIPETRACE, SIMJOB, descendants, holders

CONFIG = """[agent]
interval = %(interval)s
sample = %(sample)s
discover = 1s
at-once = %(at_once)d
expire = %(expire)s
state = %(tmp)s/state
[budget]
cpu = %(cpu)s
[http]
listen = 127.0.0.1:0
[evidence]
size = %(size)s
%(otlp)s[labels]
cluster = %(label)s
# the jobs of this test, and no others of this machine
[job ours]
cmdline = *%(tmp)s/*
[job others]
comm = *
exclude = yes
"""


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes what is pushed, as bytes: tests/e2e/agent_otlp.py decodes it."""
    got = []

    def do_POST(self):  # the name that http.server wants
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, gzip.decompress(body)
                         if self.headers.get("Content-Encoding") == "gzip" else body))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def collect():
    """A server of it; its port is server_port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Agent:
    """A live agent; its configuration is `tmp`/agent.conf."""

    def __init__(self, tmp, **settings):
        self.tmp = tmp
        self.settings = dict(tmp=tmp, interval="6s", sample="2s", cpu="100", size="64M",
                             label="test", at_once=2, expire="60s", otlp="")
        self.settings.update(settings)
        self.conf = os.path.join(tmp, "agent.conf")
        self.log = os.path.join(tmp, "agent.log")
        self.proc = self.port = None
        self.said = []  # by its service manager
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(os.path.join(tmp, "notify"))
        threading.Thread(target=self.listen, daemon=True).start()
        self.configure()

    def configure(self, **settings):
        self.settings.update(settings)
        with open(self.conf, "w", encoding="ascii") as f:
            f.write(CONFIG % self.settings)
        os.chmod(self.conf, 0o600)

    def start(self, limit=15):
        env = dict(os.environ, NOTIFY_SOCKET=os.path.join(self.tmp, "notify"),
                   WATCHDOG_USEC="3000000", JOURNAL_STREAM="1:2")
        env.pop("WATCHDOG_PID", None)
        with open(self.log, "ab") as log:
            at = log.tell()
            self.proc = subprocess.Popen([PIPETRACE, "agent", "--config", self.conf],
                                         stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        end = time.monotonic() + limit
        while time.monotonic() < end and self.proc.poll() is None:
            found = re.search(r"port (\d+)", self.text(at))
            if found:
                self.port = int(found.group(1))
                return True
            time.sleep(0.05)
        return False

    def text(self, at=0):
        with open(self.log, "rb") as f:
            f.seek(at)
            return f.read().decode("utf-8", "replace")

    def listen(self):
        """As the service manager does."""
        while True:
            said = self.manager.recv(4096).decode()
            if not said:
                return
            self.said.append(said)

    def get(self, path, accept=None):
        headers = {}
        if os.path.exists(os.path.join(self.tmp, "state/token")):
            with open(os.path.join(self.tmp, "state/token"), encoding="ascii") as f:
                headers["Authorization"] = "Bearer " + f.read().strip()
        if accept:
            headers["Accept"] = accept
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.port, path),
                                         headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()

    def page(self, path):
        return json.loads(self.get(path))

    def jobs(self):
        return {j["pid"]: j for j in self.page("/jobs")["jobs"]}

    def metrics(self):
        """{(name, labels as a sorted tuple): value} of the older text format."""
        found = {}
        for line in self.get("/metrics").decode().splitlines():
            if line.startswith("#") or not line:
                continue
            m = re.match(r'(\w+)(?:\{(.*)\})? (\S+)', line)
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m.group(2) or "")
            found[(m.group(1), tuple(sorted(labels)))] = float(m.group(3))
        return found

    def value(self, name, **labels):
        """The sum of the series of this name with these labels; None: there is none."""
        rows = [v for (n, l), v in self.metrics().items()
                if n == name and set(labels.items()) <= set(l)]
        return sum(rows) if rows else None

    def children(self):
        return [pid for pid, _ in descendants(self.proc.pid)]

    def started(self):
        """{pid: arguments} of what it has started itself. Each has readers of its own below
        it, with its command line."""
        found = {}
        for pid in self.children():
            try:
                with open("/proc/%d/cmdline" % pid, "rb") as f:
                    args = f.read().split(b"\0")
                with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
                    parent = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == self.proc.pid:
                found[pid] = args
        return found

    def descriptors(self):
        """How many are open, but for clients' connections."""
        folder = "/proc/%d/fd" % self.proc.pid
        n = 0
        for fd in os.listdir(folder):
            try:
                n += not os.readlink(os.path.join(folder, fd)).startswith("socket:")
            except OSError:
                pass
        return n

    def until(self, what, limit):
        """What `what()` says once it says something; it may fail meanwhile."""
        end = time.monotonic() + limit
        while True:
            got = what()
            if got or time.monotonic() > end or self.proc.poll() is not None:
                return got
            time.sleep(0.1)

    def fewest(self, seconds=3):
        """Descriptors at the quietest moment of so long."""
        end = time.monotonic() + seconds
        least = self.descriptors()
        while time.monotonic() < end:
            least = min(least, self.descriptors())
            time.sleep(0.05)
        return least

    def sampling(self, limit=15, begins=False):
        """Until one runs, or until one BEGINS: its process."""
        old = set(self.started()) if begins else ()
        return self.until(lambda: next((pid for pid, args in self.started().items()
                                        if pid not in old and b"--json" in args), None), limit)

    def attached(self, pid):
        """Does a sample of this process hold BPF links?"""
        for child in self.children():
            try:
                with open("/proc/%d/cmdline" % child, "rb") as f:
                    args = f.read().split(b"\0")
            except OSError:
                continue
            if b"%d" % pid in args and any(
                    kind == "link" and child in pids for (kind, _), pids in holders().items()):
                return True
        return False

    def end(self, sig=signal.SIGTERM, limit=10):
        """(exit status or None, seconds)."""
        begin = time.monotonic()
        self.proc.send_signal(sig)
        try:
            self.proc.wait(limit)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            return None, time.monotonic() - begin
        return self.proc.returncode, time.monotonic() - begin

    def close(self):
        if self.proc and self.proc.poll() is None:
            self.end()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b"", os.path.join(self.tmp, "notify"))


def start_job(tmp, name, args, seconds, env=None, program=SIMJOB):
    """A simulated training job; the path of its log marks it as this test's."""
    log = os.path.join(tmp, name + ".truth.jsonl")
    return subprocess.Popen([program, "--seconds", str(seconds), "--truth", log] + args.split(),
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, env=env), log


def steps(log):
    with open(log, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f if line.endswith("}\n")]
    return [r for r in rows if "step" in r]


def wait_share(log):
    """The share of its time that the job waited for data, by its own clock."""
    rows = steps(log)
    wall = rows[-1]["compute_end"] - rows[0]["wait_begin"]
    return sum(r["wait_end"] - r["wait_begin"] for r in rows) / wall


def slowest(log):
    """How many times longer the slowest worker's median batch takes than the median of
    the others'."""
    made = {}
    for r in steps(log):
        made.setdefault(r["worker"], []).append(r["load_end"] - r["load_begin"])
    medians = sorted(statistics.median(v) for v in made.values())
    return medians[-1] / statistics.median(medians[:-1])
