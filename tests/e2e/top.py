#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`pipetrace top` in tmux, which is a terminal that can be read: what it shows of a
job agrees with the job's own log, keys and sizes work, and whatever ends it, the
terminal is as it was, nothing stays in the kernel and the job runs on.

    top.py [--keep DIR]     also store the screens as text

Needs root, a build and tmux. Ends with "N passed, N failed, N skipped".
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from badinput_tools import PIPETRACE, TOP, Child, bpf_objects, descendants, left_behind

SIMJOB = os.path.join(TOP, "build/sim/simjob")
# three workers, one of them dear: the GPU starves, and one is to blame
JOB = ["--workers", "3", "--items", "8", "--item-bytes", "20000", "--item-cpu-us", "600",
       "--slow-worker", "1:8", "--kernel-us", "150", "--launches", "10", "--seconds", "300"]
SHOWS = 40.0  # seconds until something shows, on a busy machine
ENDS = 30.0
WINDOW = 10.0
LEGEND = r"Workers +[#█] CPU"
results = []
keep = None


def ok(name, good, detail=""):
    results.append(bool(good))
    print("%s %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + str(detail)[:900]),
          flush=True)
    return good


def until(what, limit):
    """The first true answer of `what`, or the last one."""
    end = time.monotonic() + limit
    while True:
        got = what()
        if got or time.monotonic() > end:
            return got
        time.sleep(0.1)


class Screen:
    """A shell in a terminal of tmux; top is started in it by run()."""
    started = 0

    def __init__(self, tmp, cols, rows, env=None):
        Screen.started += 1  # a server that ends may still be there
        self.tmp, self.socket = tmp, os.path.join(tmp, "tmux-%d" % Screen.started)
        self.size = (cols, rows)
        vars = dict(os.environ, LC_ALL="C.UTF-8", PS1="$ ", **(env or {}))
        vars.pop("TMUX", None)
        with open(os.path.join(tmp, "tmux.conf"), "w") as f:
            f.write("set -g default-terminal screen-256color\nset -g status off\n"
                    "set -g escape-time 0\n")
        subprocess.run(["tmux", "-S", self.socket, "-f", os.path.join(tmp, "tmux.conf"),
                        "new-session", "-d", "-x", str(cols), "-y", str(rows),
                        "bash --norc --noprofile -i"], env=vars, check=True, timeout=20)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.tmux("kill-server")

    def tmux(self, *args):
        return subprocess.run(["tmux", "-S", self.socket, *args], capture_output=True, text=True,
                              timeout=20, check=False).stdout

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def text(self):
        return self.tmux("capture-pane", "-p")

    def wait_for(self, pattern, limit=SHOWS):
        """The first screen that the pattern is found in; None: there was none."""
        def look():
            text = self.text()
            return text if re.search(pattern, text, re.S) else None
        return until(look, limit)

    def resize(self, cols, rows):
        self.size = (cols, rows)
        self.tmux("resize-window", "-x", str(cols), "-y", str(rows))

    def other_screen(self):
        return self.tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def run(self, args, env=""):
        for name in ("before", "after", "status"):
            path = os.path.join(self.tmp, name)
            if os.path.exists(path):
                os.unlink(path)
        self.keys("stty -a > %s/before; %s %s %s; echo $? > %s/status; stty -a > %s/after" %
                  (self.tmp, env, PIPETRACE, args, self.tmp, self.tmp), "Enter")

    def file(self, name):
        try:
            with open(os.path.join(self.tmp, name)) as f:
                return f.read()
        except OSError:
            return ""

    def ended(self, name, status):
        """It has ended with this status, and the terminal is as it was."""
        if not ok(name + ": ends", until(lambda: self.file("after").endswith("\n"), ENDS),
                  self.text()):
            return
        ok(name + ": status %d" % status, self.file("status").strip() == str(status),
           self.file("status"))
        # but for its size, which others set
        was, now = (re.sub(r"rows \d+; columns \d+; ", "", self.file(f))
                    for f in ("before", "after"))
        ok(name + ": the terminal is as it was", was == now, (was, now))
        ok(name + ": the other screen is left", not self.other_screen())


def save(name, text):
    if keep and text:
        os.makedirs(keep, exist_ok=True)
        with open(os.path.join(keep, name + ".txt"), "w", encoding="utf-8") as f:
            f.write(text)


def fits(name, screen, text):
    lines = text.rstrip("\n").split("\n")
    ok(name + ": the first line is the head, the last one the keys",
       text and lines[0].startswith("pipetrace top") and "quit" in lines[-1] and
       len(lines) == screen.size[1], text)


def top_pids():
    """(pid, its child) of the tops that we started: shell, top, its child."""
    found = []
    for pid, _ in descendants(os.getpid()) + orphans():
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                argv = f.read().split(b"\0")
            with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as f:
                if f.read().strip() == "pipetrace-elf":
                    continue  # a child of the child, that reads ELF files
        except OSError:
            continue
        if argv[0].decode("utf-8", "replace") == PIPETRACE and b"top" in argv:
            found.append(pid)
    return found


def orphans():
    """tmux's server is nobody's child: what lies below it, by its socket."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/cmdline" % name, "rb") as f:
                if Screen.mark.encode() in f.read():
                    found += descendants(int(name))
        except OSError:
            pass
    return found


class Truth:
    """Data waits of the job's own log."""

    def __init__(self, path):
        self.waits, self.workers = [], []
        with open(path, encoding="utf-8") as f:
            for line in f:
                try:
                    v = json.loads(line)
                except ValueError:
                    continue  # the job was ended in the middle of it
                if "step" in v:
                    self.waits.append((v["wait_begin"] / 1e9, v["wait_end"] / 1e9))
                if v.get("workers"):
                    self.workers = v["workers"]

    def share(self, begin, end):
        return sum(max(0, min(e, end) - max(b, begin)) for b, e in self.waits) / (end - begin)

    def shares(self, seen):
        """Of windows that a screen seen at `seen` may show: it is made anew every two
        seconds, later on a busy machine."""
        return [self.share(seen - WINDOW - d / 4, seen - d / 4) for d in range(20)]


def start_job(tmp, more=()):
    path = os.path.join(tmp, "truth.jsonl")
    job = Child([SIMJOB, *JOB, "--truth", path, *more], stderr=subprocess.DEVNULL)
    return job, path


def wait_share(text):
    m = re.search(r"data wait (\d+(?:\.\d+)?) %", text or "")
    return float(m.group(1)) / 100 if m else None


def check_screens(tmp, pid, before):
    """80x24 and 200x50, keys, sizes. (When it was seen, the share that it showed.)"""
    seen = share = None
    with Screen(tmp, 80, 24) as s:
        s.run("top -p %d" % pid)
        text = s.wait_for(r"slow_worker.*data wait.*" + LEGEND)
        if not ok("80x24: the verdict shows", text, s.text()):
            return None, None
        fits("80x24", s, text)
        ok("80x24: busy bounds", re.search(r"GPU.* busy [\d.]+ % \([\d.]+ % to [\d.]+ %\)", text), text)
        ok("80x24: own CPU", re.search(r"own CPU \d", text), text)
        # of whole windows only
        text = s.wait_for(r"last 10\.0 s")
        seen, share = time.monotonic(), wait_share(text)
        save("top-80x24", text)

        s.keys("3")
        text = s.wait_for(r"p95 ms") or ""
        fits("workers", s, text)
        rows = re.findall(r"^(\d+) +loader", text, re.M)
        slow = re.findall(r"^(\d+) +loader.* slow \d", text, re.M)
        ok("workers: the slow one first", len(rows) == 3 and slow == rows[:1], text)
        s.keys("S")  # the last key: by pid
        text = s.wait_for(r"pid▾") or ""
        up = re.findall(r"^(\d+) +loader", text, re.M)
        ok("sorted by pid", len(up) == 3 and up == sorted(up, key=int), text)
        s.keys("r")
        text = s.wait_for(r"pid▴") or ""
        down = re.findall(r"^(\d+) +loader", text, re.M)
        ok("sorted the other way", len(down) == 3 and down == up[::-1], text)
        save("top-workers", text)

        s.keys("?")
        ok("help opens", s.wait_for(r"sort the other way round"), s.text())
        s.keys("x")
        ok("help closes", s.wait_for(r"p95 ms"), s.text())
        s.keys("5")
        ok("operations", s.wait_for(r"cudaLaunchKernel"), s.text())
        s.keys("Tab")
        text = s.wait_for(r"(?m)^>?\*%d " % pid)
        ok("jobs: the traced one is marked", text, s.text())
        s.keys("1", "p")
        ok("pause", s.wait_for(r"PAUSED"), s.text())
        s.keys("p")

        s.resize(200, 50)
        text = until(lambda: s.text() if s.text().count("\n") >= 50 and
                     len(s.text().split("\n")[0]) > 100 else None, SHOWS)
        fits("200x50", s, text or s.text())
        ok("200x50: the bars are longer", text and max(map(len, re.findall("█[█▒░▓▚▞▙]*", text))) >
           120, text)
        save("top-200x50", text)
        s.resize(40, 10)
        ok("40x10 shows what fits", s.wait_for(r"^pipetrace top") and
           len(s.text().rstrip("\n").split("\n")) <= 10, s.text())
        s.keys("C-c")
        s.ended("Ctrl-C", 0)
        left = left_behind(before, [])
        ok("Ctrl-C: no BPF object left", not left, ", ".join(left))
    return seen, share


def check_ends(tmp, pid, before):
    with Screen(tmp, 200, 50) as s:
        for name, sig, who, status in (("kill -TERM", signal.SIGTERM, 0, 0),
                                       ("kill -SEGV of its child", signal.SIGSEGV, 1, 1)):
            s.run("top -p %d" % pid)
            ok(name + ": shows", s.wait_for(LEGEND), s.text())
            pids = sorted(top_pids())
            if not ok(name + ": found", len(pids) == 2, pids):
                return
            os.kill(pids[who], sig)
            s.ended(name, status)
            ok(name + ": nobody left", until(lambda: not top_pids(), 5), top_pids())
            left = left_behind(before, [])
            ok(name + ": no BPF object left", not left, ", ".join(left))
        s.run("top -p %d" % pid, env="LC_ALL=C NO_COLOR=1")
        text = s.wait_for(LEGEND) or ""
        ok("ASCII: nothing else", text.isascii() and "####" in text, text)
        save("top-ascii", text)
        s.keys("q")
        s.ended("q", 0)
    with Screen(tmp, 80, 24) as s:
        # the list first, whoever else has jobs here
        with Child([SIMJOB, *JOB[:4], "--seconds", "300"]):
            s.run("top")
            s.wait_for(r"GPU library")
            for _ in range(60):
                if re.search(r"(?m)^>.?%d " % pid, s.text()):
                    break
                s.keys("Down")
                time.sleep(0.2)
            ok("jobs: can be chosen", re.search(r"(?m)^>.?%d " % pid, s.text()), s.text())
            save("top-jobs", s.text())
            s.keys("Enter")
            ok("jobs: Enter traces it", s.wait_for(r"pid %d .*Time" % pid), s.text())
            s.keys("Escape")
            ok("Esc leaves it", s.wait_for(r"GPU library"), s.text())
            left = left_behind(before, [])
            ok("Esc: no BPF object left", not left, ", ".join(left))
            s.keys("q")
            s.ended("q in the jobs", 0)


def cpu_s(pids):
    """What they have computed so far, s."""
    ticks = 0
    for pid in pids:
        with open("/proc/%d/stat" % pid, "rb") as f:
            ticks += sum(int(x) for x in f.read().rsplit(b")", 1)[1].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def check_gone(tmp, job, pid, before):
    with Screen(tmp, 80, 24) as s:
        s.run("top -p %d" % pid)
        ok("target's end: shows", s.wait_for(LEGEND), s.text())
        job.terminate()
        job.wait(10)
        text = s.wait_for(r"ENDED")
        ok("target's end: says so, the last picture stays", text and "Time" in text, s.text())
        left = left_behind(before, [])
        ok("target's end: no BPF object left", not left, ", ".join(left))
        save("top-ended", text)
        time.sleep(6)  # by now the list of jobs, which is not shown, would be due
        pids = top_pids()
        was = cpu_s(pids)
        time.sleep(3)
        now = cpu_s(pids)
        ok("target's end: top waits, too", len(pids) == 2 and now - was < 0.1, (pids, now - was))
        s.keys("q")
        s.ended("target's end", 0)


def check_plain(tmp, pid):
    for name, env in (("no terminal", {}), ("TERM=dumb", {"TERM": "dumb"})):
        done = subprocess.run([PIPETRACE, "top", "-p", str(pid), "-d", "7", "--last", "4"],
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                              env=dict(os.environ, LC_ALL="C.UTF-8", **env), check=False)
        out = done.stdout.decode("utf-8", "replace")
        ok(name + ": text at an interval", done.returncode == 0 and "\033" not in out and
           len(re.findall(r"(?m)^pipetrace top", out)) >= 2 and "Workers" in out,
           (done.returncode, out, done.stderr))
        ok(name + ": lines of 80 columns", max(map(len, out.split("\n"))) <= 80, out)
    done = subprocess.run([PIPETRACE, "top", "-p", "1,2"], capture_output=True, timeout=20,
                          check=False)
    ok("two pids are refused", done.returncode == 2 and done.stderr.count(b"\n") == 1, done)
    done = subprocess.run([PIPETRACE, "top", "-p", str(2 ** 22 - 3)], capture_output=True,
                          timeout=20, check=False)
    ok("no such pid", done.returncode == 1 and done.stderr.count(b"\n") == 1, done)


def check_hostile(tmp):
    """A job that is named to own the terminal."""
    name = os.path.join(tmp, "x\x1b]0;owned\x07\x1b[2J\u202eyp.sj")
    os.symlink(SIMJOB, name)
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(TOP, "build/sim"))
    with Child([name, *JOB, "--seconds", "60"], env=env) as job:
        time.sleep(1)
        with Screen(tmp, 200, 50) as s:
            s.run("top -p %d" % job.pid)
            text = s.wait_for(r"Time ") or ""
            ok("a hostile name is shown, not obeyed", "owned" in text and "\\x1b" in text and
               "\u202e" not in text, s.text())
            s.keys("q")
            s.ended("a hostile name", 0)


def main():
    global keep
    if len(sys.argv) == 3 and sys.argv[1] == "--keep":
        keep = sys.argv[2]
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not shutil.which("tmux"):
        print("tmux is not installed")
        return 77
    try:
        os.close(os.open("/dev/ptmx", os.O_RDWR))
    except OSError as e:
        print("no terminal can be made here: %s" % e)
        return 77
    before = bpf_objects()
    with tempfile.TemporaryDirectory(prefix="pipetrace-top-") as tmp:
        Screen.mark = os.path.join(tmp, "tmux-")
        child, truth = start_job(tmp)
        with child as job:
            time.sleep(1.5)
            seen, share = check_screens(tmp, job.pid, before)
            check_ends(tmp, job.pid, before)
            check_plain(tmp, job.pid)
            ok("the job runs on", job.poll() is None)
            check_gone(tmp, job, job.pid, before)
        log = Truth(truth)
        if seen and share is not None:
            # as far as the shares of the windows differ that may have been shown, and a
            # digit of rounding; what a wait has besides the log's brackets is 2 points
            shares = log.shares(seen)
            ok("the data wait is the job's own", min(shares) - 0.025 <= share <=
               max(shares) + 0.025, (share, min(shares), max(shares)))
            print("data wait shown %.3f, by the job's log %.3f to %.3f" %
                  (share, min(shares), max(shares)))
        else:
            ok("the data wait is shown", False)
        check_hostile(tmp)
    print("%d passed, %d failed, 0 skipped" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
