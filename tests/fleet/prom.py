# SPDX-License-Identifier: BSD-2-Clause
"""A real Prometheus on loopback, with a data folder of its own."""
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
SIMULATE = os.path.join(BUILD, "fleet/simulate")
RULES = os.path.join(TOP, "tools/fleet/rules.yml")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, timeout=30):
    with opener.open(url, timeout=timeout) as r:
        return r.read()


def end(proc, limit=10):
    """Stop a process of ours."""
    if proc.poll() is None:
        proc.terminate()
        try:
            proc.wait(limit)
        except subprocess.TimeoutExpired:
            proc.kill()
            proc.wait(limit)


def faster(rules, factor):
    """The rules with every window, wait and interval `factor` times shorter."""
    def short(m):
        seconds = int(m.group(2)) * {"s": 1, "m": 60, "h": 3600}[m.group(3)]
        return "%s%ds" % (m.group(1), max(1, round(seconds / factor)))
    rules = re.sub(r"(\[)(\d+)([smh])(?=\])", short, rules)
    rules = re.sub(r"((?:for|interval): )(\d+)([smh])", short, rules)
    return re.sub(r"(> )(1200)()$", lambda m: "> %d" % (1200 / factor), rules, flags=re.M)


class Prometheus:
    """`scrape`: text of scrape_configs; `rules`: text; `every`: seconds."""

    def __init__(self, scrape, rules=None, every=60):
        self.dir = tempfile.mkdtemp(prefix="pt-prometheus.")
        self.port = free_port()
        self.url = "http://127.0.0.1:%d" % self.port
        config = "global:\n  scrape_interval: %gs\n  scrape_timeout: %gs\n  evaluation_interval: %gs\n" % (
            every, min(every, 10), every)
        if rules:
            with open(os.path.join(self.dir, "rules.yml"), "w", encoding="utf-8") as f:
                f.write(rules)
            config += "rule_files: [rules.yml]\n"
        with open(os.path.join(self.dir, "prometheus.yml"), "w", encoding="utf-8") as f:
            f.write(config + "scrape_configs:\n" + scrape)
        self.log = open(os.path.join(self.dir, "log"), "w", encoding="utf-8")
        self.proc = subprocess.Popen(
            ["nice", "prometheus", "--config.file=" + self.dir + "/prometheus.yml",
             "--storage.tsdb.path=" + self.dir + "/data", "--web.listen-address=127.0.0.1:%d" % self.port],
            stdout=self.log, stderr=self.log, cwd=self.dir)

    def ready(self, limit=60):
        until = time.monotonic() + limit
        while time.monotonic() < until and self.proc.poll() is None:
            with contextlib.suppress(OSError):
                get(self.url + "/-/ready", 5)
                return True
            time.sleep(0.2)
        return False

    def api(self, path, **args):
        return json.loads(get(self.url + "/api/v1/" + path + "?" + urllib.parse.urlencode(args), 120))

    def query(self, expr):
        """[(labels, value)], or raises with what the server says."""
        try:
            r = self.api("query", query=expr)["data"]
        except urllib.error.HTTPError as e:
            raise RuntimeError(e.read().decode("utf-8", "replace")) from None
        if r["resultType"] == "scalar":
            return [({}, float(r["result"][1]))]
        return [(x["metric"], float(x["value"][1])) for x in r["result"]]

    def one(self, expr):
        rows = self.query(expr)
        return rows[0][1] if rows else float("nan")

    def rss(self):
        with open("/proc/%d/status" % self.proc.pid, encoding="ascii") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) * 1024

    def cpu(self):
        with open("/proc/%d/stat" % self.proc.pid, encoding="ascii") as f:
            v = f.read().rsplit(")", 1)[1].split()
        return (int(v[11]) + int(v[12])) / os.sysconf("SC_CLK_TCK")

    def disk(self):
        total = 0
        for d, _, names in os.walk(self.dir + "/data"):
            for n in names:
                with contextlib.suppress(OSError):
                    total += os.stat(os.path.join(d, n)).st_blocks * 512
        return total

    def close(self):
        end(self.proc, 60)
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)


class Simulate:
    """Many nodes; targets are paths of one port, named by relabelling."""

    def __init__(self, nodes, jobs, interval, seed=1):
        self.nodes, self.interval = nodes, interval
        self.proc = subprocess.Popen(["nice", SIMULATE, str(nodes), str(jobs), str(interval), str(seed)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.proc.stdout.readline())

    def scrape(self, every):
        names = ", ".join("'node%d'" % i for i in range(self.nodes))
        return """
  - job_name: pipetrace
    scrape_interval: %gs
    static_configs: [{targets: [%s]}]
    relabel_configs:
      - {source_labels: [__address__], regex: 'node(\\d+)', target_label: __metrics_path__, replacement: '/$1/metrics'}
      - {source_labels: [__address__], target_label: instance}
      - {target_label: __address__, replacement: '127.0.0.1:%d'}
""" % (every, names, self.port)

    def truth(self):
        return json.loads(get("http://127.0.0.1:%d/truth" % self.port, 60))

    def close(self):
        self.proc.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.proc.wait(5)
        end(self.proc)


def fleet(url, *more, timeout=120):
    """(the page as JSON or None, seconds that it took, text of errors, status)"""
    began = time.monotonic()
    done = subprocess.run([PIPETRACE, "fleet", "--prometheus", url, "--json", "-"] + list(more),
                          capture_output=True, text=True, timeout=timeout, check=False)
    took = time.monotonic() - began
    page = json.loads(done.stdout) if done.returncode == 0 else None
    return page, took, done.stderr, done.returncode
