# SPDX-License-Identifier: BSD-2-Clause
"""A report's memory is asked for in huge pages; where the address space is too short for that, the
report is the same."""
import os
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kept  # noqa: E402

THP = "/sys/kernel/mm/transparent_hugepage"
SHORT = 300 << 20  # of address space: less than is asked for ahead
TRIES = 10


def asked(pid):
    """Was madvise() told that a heap of that process is to have huge pages?"""
    heap = False
    try:
        with open("/proc/%d/smaps" % pid, encoding="ascii", errors="replace") as f:
            for line in f:
                if line.startswith("VmFlags:") and heap and " hg" in line:
                    return True
                if "-" in line.split(" ")[0]:
                    heap = line.rstrip().endswith("[heap]")
    except OSError:
        pass
    return False


def reported(raw, most=None):
    """(status, text, whether huge pages were seen to be asked for)"""
    def bound():
        if most:
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
    seen = False
    with tempfile.TemporaryFile() as out:
        with subprocess.Popen([kept.PROGRAM, "report", raw], stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.DEVNULL, preexec_fn=bound) as p:
            while p.poll() is None:
                seen = seen or asked(p.pid)
        out.seek(0)
        return p.returncode, out.read(), seen


def main():
    if not os.access(kept.PROGRAM, os.X_OK):
        print("build/pipetrace is not built")
        return 77
    with tempfile.TemporaryDirectory() as tmp:
        raw = kept.unpack_named("golden/fdshare", tmp)
        status, text, seen = reported(raw)
        for _ in range(TRIES):  # a report takes some 50 ms: it may have ended between two looks
            seen = seen or reported(raw)[2]
        short_status, short_text, short_seen = reported(raw, SHORT)
    good = status == short_status == 0 and text == short_text and len(text) > 200 and not short_seen
    print("%s the report is the same with little address space" % ("ok" if good else "not ok"))
    able = os.path.exists(THP)
    if able:
        print("%s huge pages are asked for" % ("ok" if seen else "not ok"))
    else:
        print("skip huge pages: this kernel has none")
    passed = good + (able and seen)
    print("%d passed, %d failed, %d skipped" % (passed, 1 + able - passed, not able))
    return 0 if passed == 1 + able else 1


if __name__ == "__main__":
    sys.exit(main())
