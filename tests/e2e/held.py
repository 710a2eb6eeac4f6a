# SPDX-License-Identifier: BSD-2-Clause
"""A job that does nothing before the tracer is attached, however long that takes.

The job waits for a line on its standard input (`simjob --hold`), which it gets once the
tracer has said that it is attached: what it does is then traced from the first call on.
"""
import subprocess
import threading
import time

AGENT_S = 1.5


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
