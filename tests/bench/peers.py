# SPDX-License-Identifier: BSD-2-Clause
"""Other tracers of Debian's, each asked for what pipetrace records of the same work."""
import collections
import os

# name: what it is asked for. works: loops of tests/bench/work.c that it sees. argv: PID, LIB
# and OUT are put in. seen: what its output must have. output: it writes to OUT.
Peer = collections.namedtuple("Peer", "name works argv seen output")

READ = "tracepoint:syscalls:sys_enter_pread64 /pid == PID/ { @s[tid] = nsecs } " \
       "tracepoint:syscalls:sys_exit_pread64 /@s[tid]/ { @ = hist(nsecs - @s[tid]); " \
       "delete(@s[tid]) }"
OFF = "tracepoint:sched:sched_switch { if (args->prev_pid == PID) { @s = nsecs } " \
      "else if (args->next_pid == PID && @s) { @ = hist(nsecs - @s); @s = 0 } }"
ANY = r"(?s).{4000}"  # of a file of its own format
PEERS = (
    Peer("bpftrace, counts launches", ("call",),
         ["bpftrace", "-e", "uprobe:LIB:cuGraphLaunch { @ = count() }"], r"@: [1-9]", False),
    Peer("funccount, counts launches", ("call",),
         ["funccount-bpfcc", "-p", "PID", "LIB:cuGraphLaunch"], r"cuGraphLaunch +[1-9]", False),
    Peer("funclatency, histogram of launches", ("call",),
         ["funclatency", "-p", "PID", "LIB:cuGraphLaunch"], r"\|", False),
    Peer("bpftrace, histogram of reads", ("read",), ["bpftrace", "-e", READ], r"@:", False),
    Peer("funclatency, histogram of reads", ("read",),
         ["funclatency", "-p", "PID", "vfs_read"], r"\|", False),
    Peer("perf trace, each call", ("read", "pipe"), ["perf", "trace", "-p", "PID"], r"read", False),
    Peer("perf trace -s, sums of calls", ("read", "pipe"), ["perf", "trace", "-s", "-p", "PID"],
         r"read", False),
    Peer("strace, each call", ("read", "pipe"), ["strace", "-f", "-T", "-o", "OUT", "-p", "PID"],
         r"read", True),
    Peer("strace -c, sums of calls", ("read", "pipe"),
         ["strace", "-f", "-c", "-o", "OUT", "-p", "PID"], r"read", True),
    Peer("bpftrace, histogram of waits", ("pipe",), ["bpftrace", "-e", OFF], r"@:", False),
    Peer("offcputime, waits with stacks", ("pipe",), ["offcputime", "-p", "PID", "1000"],
         r"work|[1-9]", False),
    Peer("perf sched record, all switches", ("pipe",), ["perf", "sched", "record", "-o", "OUT"],
         ANY, True),
    Peer("biosnoop, each request", ("direct",), ["biosnoop"], r"work", False),
    Peer("biolatency, histogram", ("direct",), ["biolatency"], r"\|", False),
)
# libbpf-tools has them without a suffix, bcc's own scripts with one.
FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin")


def command(p, pid, library, out):
    put = {"PID": str(pid), "LIB": library, "OUT": out}
    argv = []
    for word in p.argv:
        for what, by in put.items():
            word = word.replace(what, by)
        argv.append(word)
    for folder in FOLDERS:
        if os.access(os.path.join(folder, argv[0]), os.X_OK):
            argv[0] = os.path.join(folder, argv[0])
            break
    return argv


def shown(p):
    return " ".join("'%s'" % w if " " in w else w for w in p.argv)
