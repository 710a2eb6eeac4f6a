# SPDX-License-Identifier: BSD-2-Clause
"""Drives agent_net, for agent_http.py and agent_otlp.py."""
import json
import os
import subprocess
import sys
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PT_TEST_BUILD", os.path.join(TOP, "build"))
PROGRAM = os.path.join(BUILD, "tests/e2e/agent_net")


class Broken(Exception):
    pass


class Net:
    """One agent_net; a watchdog ends it, so that nothing here waits for ever."""

    def __init__(self, kind, where, *options, limit=120):
        env = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
        self.proc = subprocess.Popen([PROGRAM, kind, where] + [str(o) for o in options],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, env=env)
        self.watch = threading.Timer(limit, self.proc.kill)
        self.watch.daemon = True
        self.watch.start()
        first = self.proc.stdout.readline().split()
        if not first:
            why = self.proc.stderr.read().strip()
            self.close()
            raise Broken(why)
        self.port = int(first[1]) if first[0] == "port" else None

    def ask(self, line):
        try:
            self.proc.stdin.write(line + "\n")
            self.proc.stdin.flush()
            answer = self.proc.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise Broken("agent_net ended: " + self.proc.stderr.read()[-2000:])
        return answer.strip()

    def stats(self):
        return json.loads(self.ask("stats"))

    def close(self):
        """Its exit status; 0 is a good end."""
        self.watch.cancel()
        if self.proc.poll() is None:
            self.proc.stdin.close()
            try:
                self.proc.wait(10)
            except subprocess.TimeoutExpired:
                self.proc.kill()
        status = self.proc.wait()
        self.proc.stdout.close()
        self.proc.stderr.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def usage(self):
        """(threads, descriptors, resident KiB, seconds of CPU)"""
        base = "/proc/%d/" % self.proc.pid
        with open(base + "status") as f:
            rss = next(int(l.split()[1]) for l in f if l.startswith("VmRSS"))
        with open(base + "stat") as f:
            t = f.read().rsplit(")", 1)[1].split()
        return (len(os.listdir(base + "task")), len(os.listdir(base + "fd")), rss,
                (int(t[11]) + int(t[12])) / os.sysconf("SC_CLK_TCK"))


def until(what, limit, step=0.05):
    """Whether `what` became true within the limit."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(step)
    return bool(what())


class Tests:
    """Counts, and prints what the runner reads."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def run(self, name, test, *args):
        t0 = time.monotonic()
        try:
            skip = test(*args)
        except (AssertionError, Broken, OSError, ValueError, KeyError) as e:
            self.failed += 1
            print("not ok %s: %s: %s" % (name, type(e).__name__, e), flush=True)
            import traceback
            traceback.print_exc(file=sys.stdout)
            return
        if isinstance(skip, str) and skip.startswith("skip: "):
            self.skipped += 1
            print("skip: %s: %s" % (name, skip[6:]), flush=True)
            return
        self.passed += 1
        print("ok %s (%.1f s)%s" % (name, time.monotonic() - t0,
                                    ": " + skip if skip else ""), flush=True)

    def end(self):
        print("%d passed, %d failed, %d skipped" % (self.passed, self.failed, self.skipped))
        return 1 if self.failed else 0


def certificate(where, name, ca=None, subject="/CN=localhost"):
    """PEM files of a key and a certificate for 127.0.0.1 and localhost."""
    key, pem = "%s/%s.key" % (where, name), "%s/%s.pem" % (where, name)
    sign = ["-CA", ca[0], "-CAkey", ca[1]] if ca else []
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", subject,
                    "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
                    "-keyout", key, "-out", pem] + sign,
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)
    return pem, key
