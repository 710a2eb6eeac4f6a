#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Bad input, missing rights and sudden deaths: pipetrace answers each with one
sentence and the right exit status, and leaves nothing in the kernel or in the
target.

    tests/e2e/badinput.py [-v] [CASE...]        needs root and build/pipetrace
"""
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from badinput_tools import (LIBCUDART, PIPETRACE, SANITIZED, SIMJOB, Child, bpf_objects, breakpoints_left,
                            descendants, finish, free_pid, holders, left_behind, run, start_time)

NOISE = re.compile(r"libbpf|Traceback|Sanitizer|Assertion|BEGIN PROG LOAD LOG|core dumped", re.I)
SEED = 20240229
passed, failed, skipped = [], [], []
verbose = "-v" in sys.argv[1:]


def ok(name, good, detail=""):
    (passed if good else failed).append(name)
    if not good:
        print("not ok %s: %s" % (name, detail), flush=True)
    elif verbose:
        print("ok %s" % name, flush=True)


def skip(name, reason):
    skipped.append(name)
    print("skip: %s: %s" % (name, reason), flush=True)


def one_sentence(r, hint=False):
    """None, or what is wrong with standard error as one plain sentence. After
    a usage error a second line may say how to get help."""
    lines = r.lines
    if hint and len(lines) == 2 and lines[1].startswith("Try "):
        lines = lines[:1]
    if len(lines) != 1:
        return "%d lines on standard error" % len(lines)
    line = lines[0]
    if not line.startswith("pipetrace: "):
        return "does not begin with the program's name"
    if not 20 <= len(line) <= 500:
        return "%d characters" % len(line)
    if not all(c.isprintable() for c in line):
        return "holds control characters"
    return None


def refuses(name, r, status, words=None):
    """It failed with this status, one sentence that holds `words` (a regular
    expression), and an empty standard output."""
    trouble = []
    if r.status != status:
        trouble.append("status %s, expected %s" % (r.status, status))
    bad = one_sentence(r, hint=status == 2)
    if bad:
        trouble.append(bad)
    if NOISE.search(r.err):
        trouble.append("noise on standard error")
    if words and not re.search(words, r.err, re.I):
        trouble.append("the sentence lacks /%s/" % words)
    if r.out:
        trouble.append("something on standard output")
    ok(name, not trouble, "; ".join(trouble) + " (" + r.describe() + ")")


def survives(name, r, statuses=(0, 1)):
    """It ended by itself, in time, with one of these statuses; when it failed,
    then with one sentence."""
    good = r.status in statuses and not NOISE.search(r.err)
    if good and r.status == 1:
        good = one_sentence(r) is None
    ok(name, good, r.describe())


def job(seconds=60, *extra, **kw):
    return Child([SIMJOB, "--workers", "2", "--seconds", str(seconds)] + list(extra), **kw)


def wait_mapped(pid, limit=5.0):
    """Until the process has the GPU library mapped."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        try:
            with open("/proc/%d/maps" % pid) as f:
                if "libcudart" in f.read():
                    return True
        except OSError:
            return False
        time.sleep(0.02)
    return False


def wait_attached(proc, before, limit=10.0):
    """Until this tracer holds BPF links that were not there before."""
    end = time.monotonic() + limit
    while time.monotonic() < end and proc.poll() is None:
        for key, pids in holders().items():
            if key[0] == "link" and key not in before and proc.pid in pids:
                time.sleep(0.7)  # the GPU library's links follow the first
                return True
        time.sleep(0.1)
    return False


def clean(name, before, ours, target=None):
    left = left_behind(before, ours)
    ok(name + ": no BPF object left", not left, ", ".join(left))
    if target is not None:
        changed, compared = breakpoints_left(target, LIBCUDART)
        ok(name + ": no breakpoint left", compared > 0 and not changed,
           "%d compared, changed: %s" % (compared, " ".join(changed)))


# ---- cases -------------------------------------------------------------------

def case_no_such_pid(tmp):
    pid = free_pid()
    r = run(["-p", str(pid), "-d", "1"])
    refuses("no such pid", r, 1, str(pid))
    ok("no such pid: at once", r.seconds < 2, "%.1f s" % r.seconds)


def case_options(tmp):
    me = str(os.getpid())
    for args in (["--no-such-option"], ["-p"], ["-p", "abc"], ["-p", ""], ["-p", "0"],
                 ["-p", "-1"], ["-p", "1,,2"], ["-p", "12x"], ["-p", "99999999999999999999"],
                 ["-p", "4294967297"], ["-p", me, "-d", "-5"], ["-p", me, "-d", "abc"],
                 ["-p", me, "-d", "0"], ["-p", me, "-d", "nan"], ["-p", me, "-d", "1e999"],
                 ["-p", me, "-d", "5 minutes"], ["-p", me, "--mode", "turbo"],
                 ["-p", me, "--fail-on", "maybe"], ["-p", me, "--batch-size", "-3"],
                 ["-p", me, "--batch-size", "x"], ["-p", me, "--print-steps", "-1"],
                 ["-p", me, "stray"], ["nosuchcommand"], ["report"], ["--"],
                 ["-p", me, "--", "true"], ["doctor", "-p", "x"]):
        refuses("usage: " + (" ".join(args) or "(none)"), run(args, limit=5), 2)


def case_help(tmp):
    for args, needle in ((["--help"], "-p"), (["--version"], ".")):
        r = run(args, limit=5)
        ok("pipetrace " + args[0], r.status == 0 and needle in r.out and not r.err, r.describe())


def case_not_root(tmp):
    shutil.copy(PIPETRACE, tmp)
    os.chmod(tmp, 0o755)
    copy = os.path.join(tmp, "pipetrace")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with job() as target:
        wait_mapped(target.pid)
        refuses("not root", run(["-p", str(target.pid), "-d", "1"], prefix=nobody, binary=copy),
                1, "root|sudo|CAP_")
        refuses("not root: a command", run(["--", "true"], prefix=nobody, binary=copy),
                1, "root|sudo|CAP_")
    r = run([], prefix=nobody, binary=copy, limit=10)
    ok("not root: the list of jobs works", r.status in (0, 1) and not NOISE.search(r.err),
       r.describe())


def case_bpf_refused(tmp):
    if not shutil.which("capsh", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        return skip("BPF refused", "capsh is not installed (package libcap2-bin)")
    drop = ["capsh", "--drop=cap_sys_admin,cap_bpf,cap_perfmon", "--shell=/usr/bin/env", "--"]
    with job() as target:
        wait_mapped(target.pid)
        r = run(["-p", str(target.pid), "-d", "1"], prefix=drop)
        refuses("BPF refused", r, 1, "root|sudo|CAP_|BPF")


def case_no_btf(tmp):
    hide = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/kernel/btf && exec "$@"', "sh"]
    if subprocess.run(hide + ["true"], stderr=subprocess.DEVNULL).returncode:
        return skip("no BTF", "a mount namespace that hides it cannot be made here")
    with job() as target:
        wait_mapped(target.pid)
        r = run(["-p", str(target.pid), "-d", "1"], prefix=hide)
        refuses("no BTF", r, 1, "BTF")
    r = run(["doctor"], prefix=hide, limit=10)
    ok("no BTF: doctor says so", r.status == 1 and "BTF" in r.out + r.err, r.describe())


def case_output(tmp):
    with job() as target:
        wait_mapped(target.pid)
        base = ["-p", str(target.pid), "-d", "1", "--json"]
        for path in (os.path.join(tmp, "no/such/dir/report.json"), tmp, "/proc/version"):
            r = run(base + [path])
            refuses("unwritable output: " + path.replace(tmp, "TMP"), r, 1)
            ok("unwritable output is noticed before the capture", r.seconds < 1.0,
               "%.1f s" % r.seconds)
        r = run(base + ["/dev/full"])
        ok("full disk: status 1 and a sentence", r.status == 1 and not NOISE.search(r.err) and
           re.search("full|space|write", r.err, re.I), r.describe())
        with open("/dev/full", "w") as full:
            r = run(base + ["-"], stdout=full)
        ok("full disk on standard output: status 1", r.status == 1 and not NOISE.search(r.err),
           r.describe())
        rd, wr = os.pipe()
        os.close(rd)
        r = run(base[:-1], stdout=wr)
        os.close(wr)
        ok("closed standard output: ends by itself", r.status in (0, 1), r.describe())


def case_no_gpu_library(tmp):
    out = os.path.join(tmp, "sleep.json")
    with Child(["sleep", "60"]) as target:
        r = run(["-p", str(target.pid), "-d", "1", "--json", out])
        said = re.search("GPU|CUDA", r.err)
        ok("a target without CUDA: said in a sentence", r.status in (0, 1) and said and
           not NOISE.search(r.err), r.describe())
        if r.status == 0:
            with open(out) as f:
                rep = json.load(f)
            ids = [v["id"] for v in rep["verdicts"]]
            ok("a target without CUDA: insufficient data, nothing invented",
               ids and set(ids) <= {"insufficient_data"} and rep["gpu"] in (None, []),
               "verdicts %s gpu %r" % (ids, rep["gpu"]))
            ok("a target without CUDA: named in limits",
               any("gpu" in l["what"] for l in rep["capture"]["limits"]),
               repr(rep["capture"]["limits"]))
        ok("a target without CUDA lives on", target.poll() is None, "it ended")


def case_dies_during_attach(tmp):
    rng = random.Random(SEED)
    before, pids = bpf_objects(), []
    for i in range(10):
        with job() as target:
            if i % 2:
                wait_mapped(target.pid)
            proc = subprocess.Popen([PIPETRACE, "-p", str(target.pid), "-d", "3"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE)
            pids.append(proc.pid)
            delay = rng.uniform(0, 0.4)
            time.sleep(delay)
            doomed = descendants(target.pid)
            target.kill()
            if i % 3:
                target.wait()  # else it stays a zombie for a while
            r = finish(proc, 8)
            ok("target killed %.0f ms into the attach: ends at once" % (delay * 1e3),
               r.status in (0, 1) and not NOISE.search(r.err), r.describe())
            reap(doomed)
    clean("target killed during attach", before, pids)


def reap(tree):
    """Workers whose trainer was killed end when their pipes break; see to it."""
    for pid, start in tree:
        if start is not None and start_time(pid) == start:
            os.kill(pid, signal.SIGKILL)


def case_tracer_killed(tmp):
    before = bpf_objects()
    with job() as target:
        wait_mapped(target.pid)
        pids = []
        for i in range(3):
            with Child([PIPETRACE, "-p", str(target.pid), "-d", "30"]) as tracer:
                pids.append(tracer.pid)
                up = wait_attached(tracer, before)
                if i == 0:
                    ok("kill -9 of the tracer: it was attached", up, "no link seen")
                tracer.kill()
                tracer.wait()
        clean("kill -9 of the tracer", before, pids, target.pid)
        time.sleep(0.5)
        ok("kill -9 of the tracer: the target lives on", target.poll() is None,
           "status %s" % target.poll())
        r = run(["-p", str(target.pid), "-d", "2"])
        ok("kill -9 of the tracer: the next run works", r.status == 0 and r.out, r.describe())


def case_target_killed(tmp):
    before = bpf_objects()
    out = os.path.join(tmp, "killed.json")
    with job() as target:
        wait_mapped(target.pid)
        proc = subprocess.Popen([PIPETRACE, "-p", str(target.pid), "-d", "30", "--json", out],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        ok("kill -9 of the target: tracer was attached", wait_attached(proc, before), "no link")
        time.sleep(1.5)
        doomed = descendants(target.pid)
        target.kill()
        target.wait()
        reap(doomed)
        r = finish(proc, 10)
        ok("kill -9 of the target: status 0, a diagnosis, soon",
           r.status == 0 and r.out and r.seconds < 4 and not NOISE.search(r.err), r.describe())
        try:
            with open(out) as f:
                rep = json.load(f)
            ok("kill -9 of the target: the part that was seen is reported",
               rep["capture"]["events"] > 0 and rep["steps"]["count"], repr(rep["capture"])[:300])
        except (OSError, ValueError) as e:
            ok("kill -9 of the target: the part that was seen is reported", False, str(e))
    clean("kill -9 of the target", before, [proc.pid])


def case_signals(tmp):
    before = bpf_objects()
    with job() as target:
        wait_mapped(target.pid)
        pids = []
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            proc = subprocess.Popen([PIPETRACE, "-p", str(target.pid), "-d", "30"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE)
            pids.append(proc.pid)
            wait_attached(proc, before)
            time.sleep(0.5)
            proc.send_signal(sig)
            r = finish(proc, 10)
            ok("%s: diagnosis, status 0" % sig.name, r.status == 0 and r.out, r.describe())
        clean("signals", before, pids, target.pid)
        target.send_signal(signal.SIGSTOP)
        r = run(["-p", str(target.pid), "-d", "1"], limit=10)
        target.send_signal(signal.SIGCONT)
        survives("a stopped target", r)
        a = subprocess.Popen([PIPETRACE, "-p", str(target.pid), "-d", "2"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        b = run(["-p", str(target.pid), "-d", "2"])
        first = finish(a, 10)
        ok("two tracers of one target", first.status == 0 and b.status == 0,
           first.describe() + " / " + b.describe())


def case_hostile_names(tmp):
    """Escape sequences in what a target calls itself do not reach a terminal."""
    evil = "\x1b]0;owned\x07\x1b[31mjob\nforged line\u202e"
    argv = [evil, "--workers", "2", "--seconds", "60"]
    secret = "hunter2hunter2"
    with Child(argv, executable=SIMJOB, env=dict(os.environ, API_TOKEN=secret)) as target:
        if not wait_mapped(target.pid):
            return skip("hostile names", "the job does not start under another name")
        for args in (["-p", str(target.pid), "-d", "1"], [], ["doctor", "-p", str(target.pid)],
                     ["-p", str(target.pid), "-d", "1", "--json", "-"]):
            r = run(args)
            text = r.out + r.err
            ok("hostile names: pipetrace " + (" ".join(args[:1] + args[4:]) or "(list)"),
               r.status in (0, 1) and "\x1b" not in text and "\x07" not in text and
               ("\u202e" not in text or "--json" in args) and "\nforged" not in text and secret not in text,
               repr(text)[:600])


def case_limits(tmp):
    """Few descriptors, little memory: a sentence, not a crash."""
    before = bpf_objects()
    with job() as target:
        wait_mapped(target.pid)
        base = ["-p", str(target.pid), "-d", "1"]
        for n in (8, 24, 40):
            survives("%d descriptors" % n, run(base, preexec=lambda n=n: resource.setrlimit(
                resource.RLIMIT_NOFILE, (n, n))))
        for mb in (24, 48, 96):
            survives("%d MiB of address space" % mb, run(base, preexec=lambda mb=mb:
                     resource.setrlimit(resource.RLIMIT_AS, (mb << 20, mb << 20))),
                     statuses=(0, 1, 127) if mb == 24 else (0, 1))
    clean("limits", before, [])


def case_command(tmp):
    refuses("a command that is not there", run(["--", "/no/such/program"], limit=10), 1)
    r = run(["--", "true"], limit=10)
    ok("a command that ends at once", r.status in (0, 1) and not NOISE.search(r.err), r.describe())
    r = run(["-d", "1", "--", "sh", "-c", "exit 7"], limit=10)
    ok("the command's status is not ours", r.status in (0, 1), r.describe())


def case_streams(tmp):
    """Damaged recordings: never a crash, whatever was damaged."""
    if not os.path.exists(SANITIZED):
        return ok("damaged streams", False, "build/san/pipetrace is not built (make e2e)")
    path = os.path.join(tmp, "stream")
    with job() as target:
        wait_mapped(target.pid)
        r = run(["-p", str(target.pid), "-d", "2", "--raw-stream", path])
    if r.status != 0 or not os.path.exists(path):
        return ok("record a stream", False, r.describe())
    with open(path, "rb") as f:
        good = f.read()
    r = run(["report", "--raw-stream", path])
    ok("replay of a good stream", r.status == 0 and r.out, r.describe())
    rng = random.Random(SEED)
    bad = os.path.join(tmp, "bad")
    for name, data in (("empty", b""), ("text", b"hello, world\n" * 100), ("zeros", bytes(4096))):
        with open(bad, "wb") as f:
            f.write(data)
        refuses("a stream that is none: " + name, run(["report", "--raw-stream", bad]), 1)
    refuses("a stream that is a directory", run(["report", "--raw-stream", tmp]), 1)
    refuses("a stream that is not there", run(["report", "--raw-stream", bad + "x"]), 1)
    good = good[:2 << 20]
    for i in range(40):
        data = bytearray(good[:rng.randrange(16, len(good))] if i % 3 == 0 else good)
        for _ in range(rng.choice((1, 10, 1000))):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7f, 0xff, rng.randrange(256)))
        with open(bad, "wb") as f:
            f.write(data)
        r = run(["report", "--raw-stream", bad, "--json", "-"], limit=30, binary=SANITIZED)
        good_json = True
        if r.status == 0:
            try:
                json.loads(r.out)
            except ValueError:
                good_json = False
        ok("damaged stream %d" % i, r.status in (0, 1) and good_json and not NOISE.search(r.err),
           r.describe())


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    for path in (PIPETRACE, SIMJOB):
        if not os.path.exists(path):
            print("not ok %s is not built" % os.path.basename(path))
            print("0 passed, 1 failed, 0 skipped")
            return 1
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")]
    cases = [(n[5:], f) for n, f in sorted(globals().items()) if n.startswith("case_")]
    unknown = set(wanted) - {n for n, _ in cases}
    if unknown:
        print("no such case: %s; there are: %s" % (", ".join(sorted(unknown)),
                                                   ", ".join(n for n, _ in cases)))
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = bpf_objects()
    for name, case in cases:
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="pipetrace-badinput-") as tmp:
            try:
                case(tmp)
            except (OSError, ValueError, KeyError, RuntimeError, TypeError) as e:
                ok("case " + name, False, "%s: %s" % (type(e).__name__, e))
    clean("all cases", start, [])
    print("%d passed, %d failed, %d skipped" % (len(passed), len(failed), len(skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
