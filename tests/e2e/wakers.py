#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Who ends a wait: one job for each way by which one thread can wake another
(wakers.c), whose log says which thread sleeps and which wakes.

Of every sleep that is recorded of the sleeper, the waker that is named must be
that one, and the kind of wait and of wake-up those of the table below, in 99 of
100; beside two processes that compute, and beside two that make calls which could
wake somebody. Of those no one may ever be named, and nobody where a timer or a
disk ended the sleep.

    wakers.py [--idle|--calls] [--long] [--blind] [WAY...]

--idle and --calls take only one of the three surroundings. --blind judges as on a kernel that does not tell what a wake-up was made in: that
some ways are wrong then is no failure of the test.

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import collections
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
PIPETRACE = os.path.join(BUILD, "pipetrace")
JOB = os.path.join(BUILD, "tests/e2e/wakers")
DUMP = os.path.join(BUILD, "tests/e2e/dump_waits")
GAP_US = 1500
SHARE = 0.99
LATE = 0.1  # of timed sleeps, beside others: the timer was over before the thread had left its core,
#             and no wake-up was seen (6 of 200 beside two that call and one that computes)
UNSEEN = 0.03  # of others, beside others: no wake-up was seen, and nobody was named (2 of 195, as above)
BLIND = ["blind"] if "--blind" in sys.argv else []

# As in user/model/timeline.h.
WAITS = ("runq disk disk_write fault pipe_in pipe_out sock futex sleep poll stopped other flock "
         "child msgq sem event inode_lock reclaim uring signal").split()
WAKES = "none data room lock futex child signal other timer device".split()
NOBODY = ("timer", "device")

# Way: what it waits for, what may wake it. A "room" beside "data" is a request
# that was read.
Way = collections.namedtuple("Way", "wait wakes few", defaults=(4,))
WAYS = {
    "pipe": Way("pipe_in", "data"), "fifo": Way("pipe_in", "data"),
    "socketpair": Way("sock", "data"), "dgram": Way("sock", "data"),
    "seqpacket": Way("sock", "data"), "ask": Way("sock", "data room"),
    "ask_tcp": Way("sock", "data room"), "tcp": Way("sock", "data"),
    "tcp6": Way("sock", "data"), "udp": Way("sock", "data"),
    "eventfd": Way("event", "data"), "poll2": Way("pipe_in", "data"),
    "poll_tcp": Way("sock", "data"), "select": Way("pipe_in", "data"),
    "select_high": Way("pipe_in", "data"), "select_tcp": Way("sock", "data"),
    "epoll_pipe": Way("pipe_in", "data"), "epoll_event": Way("poll", "data"),
    "epoll_tcp": Way("sock", "data"), "pipe_full": Way("pipe_out", "room"),
    "stream_full": Way("sock", "room"), "tcp_full": Way("sock", "room"),
    "futex": Way("futex", "futex"), "futex_shared": Way("futex", "futex"),
    "semop": Way("sem", "futex"), "msg": Way("msgq", "data"), "mq": Way("msgq", "data"),
    "signalfd": Way("event", "signal"), "sigwait": Way("signal", "other"),
    "sigsuspend": Way("signal", "other"), "flock": Way("flock", "lock"),
    "fcntl": Way("flock", "lock"), "ofd": Way("flock", "lock"),
    "inode": Way("inode_lock", "lock", 40), "child": Way("child", "child"),
    "waitid": Way("child", "child"), "killed": Way("child", "child"),
    "vfork": Way("child", "child"), "join": Way("futex", "child"),
    "eof": Way("sock", "data"), "uring": Way("uring", "data"),
    "uring_tcp": Way("uring", "data"), "nap": Way("sleep", "timer"),
    "poll_out": Way("sock", "timer"), "epoll_out": Way("poll", "timer"),
    "futex_out": Way("futex", "timer"), "disk": Way("disk", "device"),
}
# Calls that a way makes beside the one that it is about, and what they wait for.
ALSO = {
    "flock": {"sleep"}, "fcntl": {"sleep"}, "ofd": {"sleep"}, "inode": {"sleep"},
    "eof": {"child"},
}
# clone, fork, vfork and clone3, which sleep by themselves on a busy machine
MAKING = (56, 57, 58, 435) if os.uname().machine == "x86_64" else (220, 435)

Sleep = collections.namedtuple(
    "Sleep", "tgid tid begin us wait wake valid wtgid wtid nr wnr kind obj wkind wobj made state flags")


def hog_computes():
    while True:
        pass


def hog_calls():
    """Sends, writes and futexes of its own: calls that wake."""
    a, b = socket.socketpair()
    srv = socket.create_server(("127.0.0.1", 0))
    c = socket.create_connection(srv.getsockname())
    d = srv.accept()[0]
    r, w = os.pipe()
    while True:
        a.send(b"x" * 64)
        b.recv(64)
        c.send(b"x" * 64)
        d.recv(64)
        os.write(w, b"x" * 64)
        os.read(r, 64)


def start_hogs(what):
    pids = []
    for _ in range(2 if what else 0):
        pid = os.fork()
        if not pid:
            what()
        pids.append(pid)
    return pids


def record(way, rounds, tmp):
    log, raw = os.path.join(tmp, "log"), os.path.join(tmp, "raw")
    for path in (log, raw):
        if os.path.exists(path):
            os.unlink(path)
    t = subprocess.run([PIPETRACE, "-q", "--raw-stream", raw, "--", JOB, way, str(rounds),
                        str(GAP_US), log], stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, timeout=120, check=False, cwd=tmp)
    if t.returncode:
        raise ValueError("pipetrace %d: %s" % (t.returncode, t.stderr[-300:]))
    truth = [line.split() for line in open(log, encoding="utf-8")]
    out = subprocess.run([DUMP, raw] + BLIND, capture_output=True, text=True, timeout=60, check=True)
    rows = []
    for line in out.stdout.splitlines():
        f = line.split()
        rows.append(Sleep(*[int(x) for x in f[:4]], WAITS[int(f[4])], WAKES[int(f[5])],
                          f[6] == "1", *[int(x) for x in f[7:11]], int(f[11]), f[12],
                          int(f[13]), f[14], int(f[15], 16), int(f[16]), int(f[17], 16)))
    begin, end, sleeper = (next(int(t) for k, t in truth if k == key)
                           for key in ("begin", "end", "sleeper"))
    mine = [s for s in rows if s.tid == sleeper and begin <= s.begin < end]
    return rows, mine, {int(t) for k, t in truth if k == "waker"}


def is_right(name, s, wakers):
    want = WAYS[name]
    if s.wait != want.wait or s.wake not in want.wakes.split():
        return False
    if s.wake in NOBODY:
        return not s.valid
    return s.valid and s.wtid in wakers


def judge(name, rounds, hogs, tmp):
    rows, mine, wakers = record(name, rounds, tmp)
    of = [s for s in mine if s.wait not in ALSO.get(name, set()) | {"fault"}
          and not (s.wait == "other" and s.nr in MAKING)]
    good = [s for s in of if is_right(name, s, wakers)]
    unseen = [s for s in of if hogs and s not in good and s.wait == WAYS[name].wait
              and s.wake == "none" and not s.valid]
    if len(unseen) <= (LATE if WAYS[name].wakes == "timer" else UNSEEN) * len(of):
        good += unseen
    wrong = []
    named = [s for s in rows if s.valid and s.wtgid in hogs]
    if named:
        wrong.append("%d sleeps named a process that has nothing to do with it: %r" % (
            len(named), named[0]))
    if len(of) < rounds / WAYS[name].few:
        wrong.append("only %d sleeps of %d rounds" % (len(of), rounds))
    elif len(good) < SHARE * len(of):
        bad = collections.Counter((s.wait, s.wake, s.valid, s.wtid in wakers, s.nr, s.wnr, s.made)
                                  for s in of if not is_right(name, s, wakers))
        wrong.append("%d of %d are right; else (wait, wake, waker named, the right one, call, "
                     "waker's call, made in): %r" % (len(good), len(of), bad.most_common(4)))
    data = sum(s.wake == "data" for s in of)
    return wrong, "%d of %d%s" % (len(good), len(of),
                                  ", %d for data" % data if "room" in WAYS[name].wakes else "")


def main():
    args = sys.argv[1:]
    long = "--long" in args
    names = [a for a in args if not a.startswith("-")] or list(WAYS)
    beside = [("idle", None), ("two that compute", hog_computes), ("two that call", hog_calls)]
    if "--idle" in args:
        beside = beside[:1]
    elif "--calls" in args:
        beside = beside[2:]
    if os.geteuid():
        print("ok wakers # SKIP needs root")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    rounds = 1000 if long else 200
    passed = failed = 0
    with tempfile.TemporaryDirectory(dir=os.path.join(BUILD, "tests")) as tmp:
        for words, what in beside:
            hogs = start_hogs(what)
            time.sleep(0.2)
            try:
                for name in names:
                    try:
                        wrong, told = judge(name, rounds, set(hogs), tmp)
                    except (ValueError, StopIteration, OSError,
                            subprocess.SubprocessError) as e:
                        wrong, told = ["%s: %s" % (type(e).__name__, e)], ""
                    passed += not wrong
                    failed += bool(wrong)
                    print("%s %s, %s (%s)" % ("not ok" if wrong else "ok", name, words, told))
                    for w in wrong:
                        print("    " + w)
                    sys.stdout.flush()
            finally:
                for pid in hogs:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
