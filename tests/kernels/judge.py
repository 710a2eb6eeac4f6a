# SPDX-License-Identifier: BSD-2-Clause
"""What each door claims, and whether a kernel's lines (doors.c) bear it out.

The truth in the lines is the job's own (reads.c).
"""
import json
import re

STILL = 1000  # of so many calls one lost record
KINDS = ("read", "readv", "pread", "preadv2", "mmap", "io_uring", "sendfile", "splice",
         "copy_file_range", "o_direct", "libaio", "fifo")
# The same job where something is odd (VARIANTS of run).
VARIANTS = ("cold", "tmpfs", "overlay", "namespace")
EXACT = "exact"   # calls and bytes of every file are the job's own, and failed calls
DATA = "data"     # calls that returned data: exact; bytes too, but for calls whose record
#                   says "at most": those are at most two pages above the truth
OVER = "over"     # at least the calls that returned data, at least their bytes
FAULTED = "faulted"  # no call; bytes that page faults brought in are exact
UNSEEN = "unseen"  # nothing at all
CALLS = dict(dict.fromkeys(KINDS, EXACT), mmap=UNSEEN, libaio=UNSEEN)
CLAIMS = {
    "fexit": dict(CALLS, libaio=DATA),
    "kprobe": CALLS,
    "syscall": CALLS,
    "pages": dict(dict.fromkeys(KINDS, DATA), mmap=UNSEEN, o_direct=UNSEEN, io_uring=EXACT,
                  libaio=UNSEEN, fifo=UNSEEN),
    "none": dict.fromkeys(KINDS, UNSEEN),
}
# ... and where a variant claims something else.
ODD = {
    ("pages", "tmpfs"): dict(dict.fromkeys(KINDS, UNSEEN), io_uring=EXACT),
    ("pages", "cold"): dict(CLAIMS["pages"], splice=OVER),
    # a copy is the server's work
    ("pages", "nfs"): dict(CLAIMS["pages"], splice=OVER, copy_file_range=UNSEEN),
}
# Rows of pipetrace doctor, and the need of capture.hooks that each of them is about.
DOCTOR = {"reads": "reads", "reads by io_uring": "io_uring",
          "reads by libaio": "libaio", "scheduler events": "sched",
          "page faults": "faults", "block requests": "block", "network peers": "sockets"}
# Doors that have to open, by kernel; others have to refuse in one sentence.
OPENS = {
    "6.1": {"fexit", "kprobe", "syscall", "none"},
    "6.12": {"fexit", "kprobe", "pages", "syscall", "none"},
    "arm64 6.1": {"kprobe", "syscall", "none"},
    "arm64 6.12": {"fexit", "kprobe", "pages", "syscall", "none"},
}


BROKEN_OFF = 5  # calls of some hundred to a thousand


class Sum:
    def __init__(self, f):
        (self.files, self.calls, self.bytes, self.empty, self.failed, self.seen_calls,
         self.seen_bytes, self.bound, self.seen_failed, self.exact_calls, self.exact_data,
         self.exact_bytes, self.exact_failed, self.within, self.named) = map(int, f)


def begun_anew(kind, s):
    """Work that the kernel has for a thread (io_uring's) may break a splice off before it moved
    anything; the call begins anew, and nobody but a tracer sees that it failed once. None of these
    fails otherwise here."""
    return kind in ("sendfile", "splice") and not s.failed and s.seen_failed <= BROKEN_OFF


def claim_fails(kind, claim, s):
    """Why the sums do not bear the claim out, or None."""
    if claim == UNSEEN:
        return "%d calls seen" % s.seen_calls if s.seen_calls else None
    if claim == EXACT:
        if s.exact_calls < s.files or s.exact_bytes < s.files or s.bound:
            return "calls of %d and bytes of %d files of %d are exact (%d for %d, %d for %d)" % (
                s.exact_calls, s.exact_bytes, s.files, s.seen_calls, s.calls, s.seen_bytes,
                s.bytes)
        if s.exact_failed < s.files and not begun_anew(kind, s):
            return "failed calls of %d files of %d are exact (%d for %d)" % (
                s.exact_failed, s.files, s.seen_failed, s.failed)
        return None
    if claim == FAULTED:
        if s.seen_calls or s.exact_bytes < s.files:
            return "%d calls seen; bytes of %d files of %d are exact (%d for %d)" % (
                s.seen_calls, s.exact_bytes, s.files, s.seen_bytes, s.bytes)
        return None
    if claim == OVER:
        if s.seen_calls < s.calls - s.empty or s.seen_bytes < s.bytes:
            return "%d calls for %d, %d bytes for %d" % (
                s.seen_calls, s.calls, s.seen_bytes, s.bytes)
        return None
    if s.exact_data < s.files:
        return "calls of %d files of %d are exact (%d for %d)" % (
            s.exact_data, s.files, s.seen_calls, s.calls - s.empty)
    if s.within < s.files:
        return "bytes of %d files of %d are out of bounds" % (s.files - s.within, s.files)
    return None


class Kernel:
    def __init__(self, name, lines):
        self.name, self.lines = name, lines
        self.release = "unknown"
        self.parts, self.status = {}, {}
        part = None
        for line in lines:
            w = line.split()
            if not w:
                continue
            if w[0] == "kernel" and not self.parts:
                self.release = w[-1]
            elif w[0] == "begin":
                part = " ".join(w[1:])
                self.parts[part] = []
            elif w[0] == "end" and part:
                self.status[part] = int(w[-1])
                part = None
            elif part:
                self.parts[part].append(line)

    def door(self, name):
        """(hooks, sums by kind, lost, errors, skipped kinds, costs) of a door's run."""
        hooks, sums, errors, skipped, costs, lost = {}, {}, [], {}, {}, None
        for line in self.parts.get("door " + name, []):
            w = line.split()
            if w[0] == "hook":
                hooks[w[1]] = w[2]
            elif w[0] == "sum" and len(w) == 17:
                sums[w[1]] = Sum(w[2:])
            elif w[0] == "skip":
                skipped[w[1]] = " ".join(w[2:])
            elif w[0] == "lost":
                lost = int(w[1])
            elif w[0] == "error":
                errors.append(" ".join(w[1:]))
            elif w[0] == "cost" and len(w) == 5:
                costs[w[1]] = tuple(map(int, w[2:]))
        return hooks, sums, lost, errors, skipped, costs

    def no_mounts(self):
        """Why nothing could be mounted there; None: it could."""
        said = [x[len("nomounts "):] for x in self.lines if x.startswith("nomounts ")]
        return said[0] if said else None

    def opened(self, name):
        return self.door(name)[0].get("reads") == name

    def judge(self, doors):
        """Yields (whether it is right, text)."""
        if "finished" not in self.lines:
            yield False, "the run did not come to its end; last line: %s" % (
                self.lines[-1] if self.lines else "none")
        if "+" in self.name:
            yield from self.judge_doctor()
            yield from self.judge_report()
            return
        yield from self.judge_load()
        yield from self.judge_python()
        opens = OPENS.get(self.name)
        for d in doors:
            yield from self.judge_door(d, opens)
        for d in doors:
            for v in VARIANTS if not self.no_mounts() else ():
                if "+" not in d and self.opened(d):
                    yield from self.judge_door(d, opens, v)
        yield from self.judge_doctor()
        yield from self.judge_report()

    def judge_load(self):
        part = self.parts.get("load", [])
        errors = [x for x in part if x.startswith("error")]
        loaded = {tuple(x.split()[1:3]) for x in part if x.startswith("load")}
        ok = not errors and self.status.get("load") == 0 and len(loaded) > 10
        yield ok, "verifier: %d programs load%s" % (
            len(loaded), "; " + errors[0] if errors else "")

    def judge_python(self):
        part = [x for x in self.parts.get("python", []) if x.startswith(("python", "error"))]
        bad = [x for x in part if x.split()[2:3] != ["good"]]
        yield not bad and self.status.get("python") == 0 and len(part) > 20, \
            "samples of Python: %d cases%s" % (len(part), "; " + bad[0] if bad else "")

    def judge_door(self, name, opens, variant=None):
        d = name.split("+")[0]
        part = "%s/%s" % (d, variant) if variant else name
        hooks, sums, lost, errors, skipped, _ = self.door(part)
        if errors and "does not open the door" in errors[0] and not variant and (
                opens is None and d in ("fexit", "kprobe", "pages") or
                opens is not None and d not in opens):
            yield True, "%s: refused in one sentence" % d
            return
        if errors or lost is None or hooks.get("reads") != d:
            yield False, "%s: %s" % (part, errors[0] if errors else " ".join(
                self.parts.get("door " + part, ["did not open"])))
            return
        if d != part and not variant:
            yield self.judge_crowd(name, sums, lost)
            return
        wrong, judged = [], []
        for kind in KINDS:
            if kind in skipped:
                yield True, "%s %s: not there (%s)" % (part, kind, skipped[kind])
                continue
            s, claim = sums.get(kind), ODD.get((d, variant), CLAIMS[d])[kind]
            if kind == "io_uring" and d != "none" and hooks.get("io_uring") != "tp_btf":
                claim = UNSEEN
            if kind == "mmap" and hooks.get("faults", "none") != "none":
                claim = FAULTED
                if variant in ("cold", "nfs") and s and not s.bytes:
                    wrong.append("mmap: nothing was brought in")
            if not s or kind != "mmap" and not s.calls:
                wrong.append("%s: the job made no call" % kind)
                continue
            why = claim_fails(kind, claim, s)
            if why:
                wrong.append("%s %s: %s" % (kind, claim, why))
            elif claim not in (UNSEEN, OVER, FAULTED) and kind != "fifo" and s.named < s.files:
                wrong.append("%s: %d of %d files have their name" % (kind, s.named, s.files))
            judged.append((kind, claim, s))
            if not variant:
                yield not why, "%s %s: %s, %d calls, %d bytes%s" % (
                    part, kind, claim, s.calls, s.bytes, ": " + why if why else "")
        # An emulated machine may stand still for longer than a ring lasts. Where the counts show that
        # no read was among so few, that tells nothing of the door.
        still = self.name != "host" and not wrong and \
            lost * STILL <= sum(s.calls for _, _, s in judged)
        yield True if not lost else None if still else False, "%s: %d records lost" % (part, lost)
        if variant or wrong:
            yield not wrong, "%s: %s" % (part, "; ".join(wrong) or "as claimed, %d calls "
                                         "(%d failed, %d empty) and %d bytes of %d files" % (
                sum(s.calls for _, _, s in judged), sum(s.failed for _, _, s in judged),
                sum(s.empty for _, _, s in judged), sum(s.bytes for _, _, s in judged),
                sum(s.files for _, _, s in judged)))

    def judge_crowd(self, name, sums, lost):
        """Returns that the kernel does not hand on are counted as lost."""
        by = [s for k, s in sums.items() if CLAIMS["kprobe"][k] == EXACT and k != "io_uring"]
        calls = sum(s.calls + s.failed for s in by)
        seen = sum(s.seen_calls + s.seen_failed for s in by)
        return calls > 0 and lost > 0 and seen + lost == calls, \
            "%s: of %d calls %d are seen and %d counted as lost" % (name, calls, seen, lost)

    def report(self, part="report"):
        """The report of a part's trace, or None."""
        text = "\n".join(x[5:] for x in self.parts.get(part, []) if x.startswith("json "))
        try:
            return json.loads(text)
        except ValueError:
            return None

    def judge_doctor(self):
        """What doctor says is what a trace finds."""
        text = "\n".join(self.parts.get("doctor", []))
        rows = dict(re.findall(r"^  (\S+(?: \S+)*)  +(\S+(?: \S+)*)", text, re.M))
        works = "A trace would work here." in text
        report = self.report()
        yield works == (self.status.get("doctor") == 0) and works == (report is not None), \
            "doctor says that a trace %s" % ("works" if works else "does not work: %s" %
                                             text.splitlines()[-1:])
        if not report:
            return
        hooks, wrong, said = report["capture"]["hooks"], [], []
        for row, need in DOCTOR.items():
            if hooks.get(need, "none") != "none" and row not in rows:
                wrong.append("nothing of %s" % row)
            elif row in rows and rows[row] != hooks.get(need, "none"):
                wrong.append("%s by %s, and %s opened" % (row, rows[row], hooks.get(need)))
            elif row in rows:
                said.append("%s by %s" % (row, rows[row]))
        yield not wrong and rows.get("reads") == next(
            (d for d in ("fexit", "kprobe", "pages") if self.opened(d)), hooks["reads"]), \
            "doctor says %s%s" % (", ".join(said), "; wrong: " + "; ".join(wrong) if wrong else "")

    def judge_report(self):
        part = self.parts.get("report", [])
        report = self.report()
        if not report:
            # Refused: in one sentence, and the job never knew.
            text = [x[5:] for x in part if x.startswith("text ")]
            yield "status 1" in part and len(text) == 1 and text[0].startswith("pipetrace: "), \
                "no report: %s; %s" % ([x for x in part if x.startswith("status")],
                                       " | ".join(text)[-400:])
            return
        door = report["capture"]["hooks"]["reads"]
        claims = CLAIMS.get(door, {})
        have = {(f["dev"], str(f["inode"])): f for f in report["files"]}
        wrong, judged = [], 0
        for line in part:
            w = line.split()
            if w[0] != "truth" or len(w) != 9:
                continue
            kind, dev, inode, calls, size = w[1], int(w[2]), w[3], int(w[4]), int(w[5])
            if claims.get(kind) != EXACT or kind == "fifo":
                continue
            f = have.get((dev, inode))
            judged += 1
            if not f or f["reads"] != calls or f["bytes"] != size:
                wrong.append("%s %s: %s reads and %s bytes for %d and %d" % (
                    kind, w[8], f and f["reads"], f and f["bytes"], calls, size))
        yield judged > 0 and not wrong, \
            "report by %s: reads and bytes of %d files are the job's own%s" % (
                door, judged - len(wrong), "; " + wrong[0] if wrong else "")


# What a door cannot see, for the table of docs/kernels.md; CLAIMS has the checks.
CANNOT = {
    "fexit": "bytes of libaio with O_DIRECT are an upper bound",
    "kprobe": "libaio; returns of calls when many are blocked at once (counted as lost)",
    "pages": "O_DIRECT, libaio, tmpfs, FIFOs; reads at the end of a file; durations; the "
             "bytes of some calls are an upper bound",
    "syscall": "libaio",
    "none": "single reads: only those that block, and bytes by I/O accounting",
}
SINCE = {"pages": "6.12"}  # kernels before do not have it
# What tests/kernels/cost.c does.
WORKS = ("read", "switch", "fault", "fault_file", "fault_disk", "block", "write", "socket")


class Costs:
    """What a run of cost.c says: least CPU time an event, and each program's a run."""

    def __init__(self, kernel):
        self.least, self.programs = {}, {}
        for line in kernel.parts.get("cost", []):
            w = line.split()
            if w[0] == "cpu" and len(w) == 6:
                key = w[1], w[2], w[3]
                self.least[key] = min(self.least.get(key, 1e18), int(w[5]) / int(w[4]))
            elif w[0] == "prog" and len(w) == 7:
                key = w[4], w[1], w[2]
                self.programs.setdefault(key, {})[w[3]] = int(w[6]) / int(w[5]), int(w[5])
            elif w[0] in ("error", "cost:"):
                print("# %s: %s" % (kernel.release, line))

    def added(self, what, door):
        """(by the target, by another process) beside what the event takes itself; None"""
        try:
            base = self.least[what, "off", "traced"]
            return tuple(self.least[what, door, who] - base for who in ("traced", "other"))
        except KeyError:
            return None


def short(release):
    return release.replace("-cloud-amd64", "")


def table(kernels, cost_lines):
    """Rows for docs/kernels.md. cost_lines: by series, what a run with --cost said."""
    out = ["| kernel | door | opens | a traced read | anybody else's | cannot see |",
           "|---|---|---|---|---|---|"]
    for k in kernels:
        lines = cost_lines.get(k.name)
        costs = Costs(Kernel(k.name, lines)) if lines else None
        for d in CLAIMS:
            opened = k.door(d)[0].get("reads") == d
            added = costs and costs.added("read", d)
            if opened and d == "none":
                cells = ["0", "0"]  # no program runs
            elif opened:
                cells = ["%+.0f" % v for v in added] if added else ["not measured"] * 2
            else:
                cells = ["", ""]
            since = SINCE.get(d) if k.name in OPENS and d not in OPENS[k.name] else None
            word = "yes" if opened else "no (%s)" % since if since else "no"
            out.append("| %s | `%s` | %s | %s | %s |" % (
                ".".join(k.release.split(".")[:2]), d, word, " | ".join(cells),
                CANNOT[d] if opened else ""))
    return "\n".join(out) + "\n"


def costs(kernel, auto):
    """Tables: instructions of a read by door, of a context switch, and of each program
    a run, above those of an empty one. `auto`: the door with every hook."""
    c, out = Costs(kernel), ["| kernel | door, or event | of the target | of another process |",
                             "|---|---|---|---|"]

    def row(name, values, form):
        out.append("| %s | %s | %s |" % (short(kernel.release), name,
                                         " | ".join(form % v for v in values)))

    def alone(what, name):
        values = [c.least.get((what, "off", who)) for who in ("traced", "other")]
        if None not in values:
            row(name, values, "%.0f")

    alone("read", "no tracer: the read itself")
    for d in ("empty", "pair", "none") + tuple(d for d in CLAIMS if d != "none"):
        if c.added("read", d):
            row(d, c.added("read", d), "%+.0f")
    # Of rarer events the programs alone: what the events themselves take differs
    # from run to run by more.
    alone("switch", "no tracer: a context switch and a wake-up")
    if c.added("switch", auto):
        row("... with every hook", c.added("switch", auto), "%+.0f")
    nothing = [by["traced"][0] for (p, *_), by in c.programs.items()
               if p == "empty" and "traced" in by]
    nothing = min(nothing) if nothing else 0
    # Each program while the job does what makes it run most often.
    most = {}
    for (prog, what, door), by in c.programs.items():
        n = max(n for _, n in by.values())
        # One that ran here and there belongs to something else, and a pass over all
        # threads to the clock.
        if prog == "empty" or prog.startswith("pt_iter") or n < 100:
            continue
        most[prog] = max(most.get(prog, (0, "", "")), (n, what, door))
    out += ["", "| kernel | program | while | traced | another process |", "|---|---|---|---|---|"]
    for prog, (_, what, door) in sorted(most.items()):
        by = c.programs[prog, what, door]
        out.append("| %s | %s | %s, %s | %s |" % (
            ".".join(kernel.release.split(".")[:2]), prog, what, door, " | ".join(
                "%.0f" % (by[w][0] - nothing) if w in by else "" for w in ("traced", "other"))))
    return "\n".join(out) + "\n"
