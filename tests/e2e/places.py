#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Where the probes stand, and that each call passes them once.

places.S has functions of the driver's names that begin as real ones do: as in NVIDIA's
library, with endbr64, mov, sub of the stack's top, a loop back to the second
instruction, an argument that is gone. Two threads call each a known number of times.
The first bytes of each function in the job's memory say where the break point is; the
records say how often it was passed, with which arguments, and what was returned. By both
attach doors; and on a real libcuda, where there is one, PT_LIBCUDA names it or `fetch` has
unpacked Debian's into build/tests (its calls end in an error without a device; they are calls
all the same): that cuGetProcAddress hands out the exported entries' own addresses, and that
calls by these are counted at the place chosen.

    places.py [multi|perf|real|handed...]
    places.py fetch

Needs root and a build. Ends with "N passed, N failed, N skipped".
"""
import collections
import glob
import os
import platform
import re
import subprocess
import sys
import tempfile

from badinput_tools import symbol_offsets

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
JOB = os.path.join(BUILD, "tests/e2e/placesjob")
DUMP = os.path.join(BUILD, "tests/e2e/dump_records")
RUN = 64  # PT_ENTRY_RUN
THREADS = 2

# How far behind the entry the probe is.
PLACES = {
    "cuLaunchKernel": 10,
    "cuCtxSynchronize": 4,
    "cuStreamSynchronize": 3,
    "cuMemAlloc_v2": 7,
    "cuMemFree_v2": 0,
    "cuEventRecord": 0,
    "cuStreamQuery": 0,
    "cuEventQuery": 0,
    "cuEventSynchronize": 0,
    "cuMemcpyHtoDAsync_v2": 0,
}
REAL = ["cuLaunchKernel", "cuCtxSynchronize", "cuStreamSynchronize", "cuMemAlloc_v2",
        "cuEventRecord", "cuStreamQuery"]
NOTHING = 15  # PT_SLOT_ABSENT
FETCHED = os.path.join(BUILD, "tests/libcuda")


def table():
    """[(name, return is watched, [slots of stream, v0, v1, v2])]"""
    found = []
    with open(os.path.join(TOP, "user/gpu/api.def"), encoding="utf-8") as f:
        for m in re.finditer(r"^PT_API\((\w+),\s*\w+,\s*(\d),\s*(\w+), (\w+), (\w+), (\w+), "
                             r"(.*)\)$", f.read(), re.M):
            slots = [NOTHING if s == "N" else int(s) for s in m.group(3, 4, 5, 6)]
            found.append((m.group(1), m.group(2) == "1", slots))
    return found


def argument(slot, box):
    return 0 if slot == NOTHING else box if slot == 0 else 0x100 + slot


def break_points(pid, library, names):
    """{name: offsets from the entry, of bytes that are not the file's}"""
    maps = []
    with open("/proc/%d/maps" % pid, encoding="utf-8") as f:
        for line in f:
            v = line.split(None, 5)
            if len(v) == 6 and "x" in v[1] and v[5].strip() == os.path.realpath(library):
                lo, hi = (int(x, 16) for x in v[0].split("-"))
                maps.append((lo, hi - lo, int(v[2], 16)))
    at = symbol_offsets(library, names)
    order = sorted(set(symbol_offsets(library, [a[0] for a in table()]).values())) + [1 << 62]
    found = {}
    with open(library, "rb") as lib, open("/proc/%d/mem" % pid, "rb") as mem:
        for name, off in at.items():
            for lo, size, base in maps:
                if base <= off < base + size:
                    # up to the next function
                    n = min(RUN, base + size - off, order[order.index(off) + 1] - off)
                    lib.seek(off)
                    mem.seek(lo + off - base)
                    pairs = zip(lib.read(n), mem.read(n))
                    found[name] = [i for i, (a, b) in enumerate(pairs) if a != b]
    return found


def trace(library, calls, door):
    """(break points, box, {name: records entered}, {name: returned}, what the job said)"""
    argv = [JOB, library, str(THREADS)] + ["%s=%d" % (n, c) for n, c in calls.items()]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job, \
            tempfile.TemporaryFile("w+") as out:
        try:
            ready = job.stdout.readline().split()
            if len(ready) != 3:
                raise ValueError("the job did not start")
            with subprocess.Popen([DUMP, str(job.pid), "60", "light"] + door, stdout=out,
                                  stderr=subprocess.PIPE, text=True) as t:
                told = t.stderr.readline()
                where = break_points(job.pid, library, set(calls))
                job.stdin.write("\n")
                job.stdin.flush()
                said = job.stdout.read()
                told += t.stderr.read()
            if job.wait(60) or t.returncode:
                raise ValueError("the job ended with %s, the tracer with %s: %s" %
                                 (job.returncode, t.returncode, told[-300:]))
        finally:
            job.kill()
        out.seek(0)
        apis, entered, returned = table(), collections.defaultdict(list), \
            collections.defaultdict(list)
        for line in out:
            if line.startswith(("GPU_ENTER ", "GPU_RETURN ")):
                r = dict(x.split("=", 1) for x in line.split()[1:])
                of = entered if line.startswith("GPU_ENTER") else returned
                of[apis[int(r["api"])][0]].append(r)
    return where, int(ready[2]), entered, returned, said


def judge(library, calls, door, places):
    where, box, entered, returned, said = trace(library, calls, door)
    apis = {name: (ret, slots) for name, ret, slots in table()}
    wrong = []

    def same(what, told, true):
        if told != true:
            wrong.append("%s: %s, truth %s" % (what, told, true))

    same("calls that the job made", len(said.splitlines()), THREADS * len(calls))
    for name, n in calls.items():
        ret, slots = apis[name]
        if places:
            same("place of " + name, where.get(name), [places[name]])
        elif len(where.get(name) or ()) != 1:
            wrong.append("%s: break points at %s" % (name, where.get(name)))
        same("calls of " + name, len(entered[name]), n * THREADS)
        same("returns of " + name, len(returned[name]), n * THREADS if ret else 0)
        true = [str(argument(s, box)) for s in slots]
        odd = [r for r in entered[name]
               if [r["stream"], *r["v"].split(",")] != true or r["flags"] != "0"]
        if odd:
            wrong.append("%d of %s have other arguments, such as %s" % (len(odd), name, odd[0]))
        codes = {r["v"].split(",")[0] for r in returned[name]}
        same("codes of " + name, codes, {x.split()[1] for x in said.splitlines()
                                         if x.split()[0] == name} if ret else set())
        if name == "cuMemAlloc_v2" and places:
            same("pointers given", {r["v"].split(",")[1] for r in returned[name]}, {"4096"})
    return wrong, where


def fetch():
    """Debian's libcuda1, a package of its non-free component, into a folder of this test's:
    nothing is installed."""
    os.makedirs(os.path.join(FETCHED, "lists/partial"), exist_ok=True)
    sources = os.path.join(FETCHED, "sources.list")
    with open(sources, "w", encoding="utf-8") as f:
        f.write("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
                "http://deb.debian.org/debian %s non-free\n" %
                platform.freedesktop_os_release()["VERSION_CODENAME"])
    apt = ["apt-get", "-qq", "-o", "Dir::Etc::sourcelist=" + sources, "-o",
           "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::State::lists=" +
           os.path.join(FETCHED, "lists"), "-o", "Dir::Cache=" + FETCHED, "-o",
           "APT::Sandbox::User=root"]
    subprocess.run(apt + ["update"], check=True)
    subprocess.run(apt + ["download", "libcuda1"], check=True, cwd=FETCHED)
    for deb in glob.glob(os.path.join(FETCHED, "libcuda1_*.deb")):
        subprocess.run(["dpkg-deb", "-x", deb, FETCHED], check=True)
        os.unlink(deb)
    print(real_library())


def real_library():
    """A libcuda of NVIDIA; not one of the stand-ins, which have a device."""
    for path in [os.environ.get("PT_LIBCUDA", "")] + \
            sorted(glob.glob(FETCHED + "/usr/lib/*/nvidia/current/libcuda.so.1")) + \
            sorted(glob.glob("/usr/lib/x86_64-linux-gnu/libcuda.so.1")):
        if path and os.path.exists(path):
            return os.path.realpath(path)
    return None


def judge_handed(library):
    """Are the addresses that cuGetProcAddress hands out the exported entries'?"""
    names = [name for name, _, _ in table() if re.match("cu[A-Z]", name)]
    done = subprocess.run([JOB, library, "handed"] + names, stdout=subprocess.PIPE, text=True,
                          check=True)
    told = dict(line.split() for line in done.stdout.splitlines())
    wrong = ["%s is not handed out" % name for name, same in told.items() if same != "1"]
    if len(told) < 100:
        wrong.append("only %d entries are there" % len(told))
    with open(library, "rb") as f:
        code = f.read()
    begins = collections.Counter(code[at:at + 2].hex()
                                 for at in symbol_offsets(library, list(told)).values())
    return wrong, "%d entries, which begin with %s" % (len(told), ", ".join(
        "%s (%d)" % b for b in begins.most_common()))


def main():
    if sys.argv[1:] == ["fetch"]:
        return fetch()
    if os.geteuid() != 0:
        print("needs root")
        return 77
    if not os.path.exists(JOB) or not os.path.exists(DUMP):
        print("needs a build")
        return 77
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="pipetrace-places-") as tmp:
        made = os.path.join(tmp, "libcuda.so.1")
        subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", made,
                        os.path.join(TOP, "tests/e2e/places.S")], check=True)
        calls = {name: 1000 + 7 * i for i, name in enumerate(PLACES)}
        real = real_library()
        cases = [("multi", made, calls, [], PLACES), ("perf", made, calls, ["perf"], PLACES),
                 ("real", real, {name: 500 + i for i, name in enumerate(REAL)}, [], None)]
        cases.append(("handed", real, None, [], None))
        for name, library, what, door, places in cases:
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            if not library:
                skipped += 1
                print("skip %s: no libcuda here; PT_LIBCUDA=FILE names one, and `tests/e2e/"
                      "places.py fetch` gets Debian's" % name)
                continue
            try:
                wrong, where = judge(library, what, door, places) if what else \
                    judge_handed(library)
            except (OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
                wrong, where = ["%s: %s" % (type(e).__name__, e)], {}
            passed, failed = passed + (not wrong), failed + bool(wrong)
            print("%s %s%s%s" % ("not ok" if wrong else "ok", name,
                                 "" if places or wrong else ": %s" % where,
                                 ": " + "; ".join(wrong) if wrong else ""), flush=True)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
