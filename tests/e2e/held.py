# SPDX-License-Identifier: BSD-2-Clause
"""A job that does nothing before the tracer is attached, however long that takes.

The job waits for a line on its standard input (`simjob --hold`), which it gets once the
tracer has said that it is attached: what it does is then traced from the first call on.
"""
import ctypes
import os
import struct
import subprocess
import threading
import time

AGENT_S = 1.5
NO_BREAK_POINTS = "hardware break points do not work on this machine: nothing can be injected"


def break_points():
    """Do those of this machine's processor count? Some virtual ones take them and never do."""
    attr, libc = bytearray(112), ctypes.CDLL(None)
    # PERF_TYPE_BREAKPOINT; not in the kernel; HW_BREAKPOINT_X at the function
    struct.pack_into("<II", attr, 0, 5, len(attr))
    struct.pack_into("<Q", attr, 40, 1 << 5)
    struct.pack_into("<IQQ", attr, 52, 4, ctypes.cast(libc.getppid, ctypes.c_void_p).value,
                     8 if os.uname().machine == "x86_64" else 4)
    fd = libc.syscall(298 if os.uname().machine == "x86_64" else 241, bytes(attr), 0, -1, -1, 0)
    if fd < 0:
        return False
    for _ in range(100):
        libc.getppid()
    with os.fdopen(fd, "rb", 0) as f:
        return struct.unpack("<Q", f.read(8))[0] == 100


def traced(job, argv, timeout, **more):
    """Trace a held job; what subprocess.run() would say of the tracer. With --cupti the
    agent is still on its way when the tracer is attached, and gets some time."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, **more) as t:
        timer, told = threading.Timer(timeout, t.kill), ""
        timer.start()
        try:
            for line in t.stderr:
                told += line
                if "attached to" in line:
                    break
            if "--cupti" in argv:
                time.sleep(AGENT_S)
            try:
                job.stdin.write("\n")
                job.stdin.flush()
            except BrokenPipeError:
                pass  # its end says more
            out, err = t.communicate()
        finally:
            timer.cancel()
            t.kill()
    return subprocess.CompletedProcess(argv, t.returncode, out, told + err)
