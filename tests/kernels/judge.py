# SPDX-License-Identifier: BSD-2-Clause
"""What each door claims, and whether a kernel's lines (doors.c) bear it out.

The truth in the lines is the job's own (reads.c).
"""
import json
import re

KINDS = ("read", "readv", "pread", "preadv2", "mmap", "io_uring", "sendfile", "splice",
         "copy_file_range", "o_direct")
EXACT = "exact"   # calls and bytes of every file are the job's own
DATA = "data"     # calls that returned data: exact; bytes too, but for calls whose record
#                   says "at most": those are at most two pages above the truth
UNSEEN = "unseen"  # nothing at all
ALL = dict.fromkeys(KINDS, EXACT)
CLAIMS = {
    "fexit": dict(ALL, mmap=UNSEEN),
    "kprobe": dict(ALL, mmap=UNSEEN),
    "syscall": dict(ALL, mmap=UNSEEN),
    "pages": dict(dict.fromkeys(KINDS, DATA), mmap=UNSEEN, o_direct=UNSEEN, io_uring=EXACT),
    "none": dict.fromkeys(KINDS, UNSEEN),
}
# Doors that have to open, by kernel; others have to refuse in one sentence.
OPENS = {
    "6.1": {"fexit", "kprobe", "syscall", "none"},
    "6.12": {"fexit", "kprobe", "pages", "syscall", "none"},
}


class Sum:
    def __init__(self, f):
        (self.files, self.calls, self.bytes, self.empty, self.seen_calls, self.seen_bytes,
         self.bound, self.exact_calls, self.exact_data, self.exact_bytes, self.within,
         self.named) = map(int, f)


def claim_fails(claim, s):
    """Why the sums do not bear the claim out, or None."""
    if claim == UNSEEN:
        return "%d calls seen" % s.seen_calls if s.seen_calls else None
    if claim == EXACT:
        if s.exact_calls < s.files or s.exact_bytes < s.files or s.bound:
            return "calls of %d and bytes of %d files of %d are exact (%d for %d, %d for %d)" % (
                s.exact_calls, s.exact_bytes, s.files, s.seen_calls, s.calls, s.seen_bytes,
                s.bytes)
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
            elif w[0] == "sum" and len(w) == 14:
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

    def opened(self, name):
        return self.door(name)[0].get("reads") == name

    def judge(self, doors):
        """Yields (whether it is right, text)."""
        if "finished" not in self.lines:
            yield False, "the run did not come to its end; last line: %s" % (
                self.lines[-1] if self.lines else "none")
        yield from self.judge_load()
        opens = OPENS.get(self.name)
        for d in doors:
            yield from self.judge_door(d, opens)
        yield from self.judge_doctor()
        yield from self.judge_report()

    def judge_load(self):
        part = self.parts.get("load", [])
        errors = [x for x in part if x.startswith("error")]
        loaded = {tuple(x.split()[1:3]) for x in part if x.startswith("load")}
        ok = not errors and self.status.get("load") == 0 and len(loaded) > 10
        yield ok, "verifier: %d programs load%s" % (
            len(loaded), "; " + errors[0] if errors else "")

    def judge_door(self, name, opens):
        d = name.split("+")[0]
        hooks, sums, lost, errors, skipped, _ = self.door(name)
        if errors and "does not open the door" in errors[0] and (
                opens is None and d in ("fexit", "kprobe", "pages") or
                opens is not None and d not in opens):
            yield True, "%s: refused in one sentence" % d
            return
        if errors or lost is None or hooks.get("reads") != d:
            yield False, "%s: %s" % (d, errors[0] if errors else "did not open")
            return
        if d != name:
            yield self.judge_crowd(name, sums, lost)
            return
        yield lost == 0, "%s: %d records lost" % (d, lost)
        for kind in KINDS:
            if kind in skipped:
                yield True, "%s %s: not there (%s)" % (d, kind, skipped[kind])
                continue
            if kind not in sums:
                yield False, "%s %s: no result" % (d, kind)
                continue
            s, claim = sums[kind], CLAIMS[d][kind]
            if kind == "io_uring" and d != "none" and hooks.get("io_uring") != "tp_btf":
                claim = UNSEEN
            if kind != "mmap" and not s.calls:
                yield False, "%s %s: the job made no call" % (d, kind)
                continue
            why = claim_fails(claim, s)
            yield not why, "%s %s: %s, %d calls, %d bytes%s" % (
                d, kind, claim, s.calls, s.bytes, ": " + why if why else "")
            if claim != UNSEEN and s.named < s.files:
                yield False, "%s %s: %d of %d files have their name" % (
                    d, kind, s.named, s.files)

    def judge_crowd(self, name, sums, lost):
        """Returns that the kernel does not hand on are counted as lost."""
        calls = sum(s.calls for k, s in sums.items() if k != "io_uring")
        seen = sum(s.seen_calls for k, s in sums.items() if k != "io_uring")
        return calls > 0 and lost > 0 and seen + lost == calls, \
            "%s: of %d calls %d are seen and %d counted as lost" % (name, calls, seen, lost)

    def judge_doctor(self):
        text = "\n".join(self.parts.get("doctor", []))
        m = re.search(r"^\s+reads\s+(\S+)", text, re.M)
        said = m.group(1) if m else None
        want = next((d for d in ("fexit", "kprobe", "pages") if self.opened(d)), "none")
        yield said == want and self.status.get("doctor") == 0, \
            "doctor says that reads are seen by %s, %s opens" % (said, want)

    def judge_report(self):
        part = self.parts.get("report", [])
        text = "\n".join(x[5:] for x in part if x.startswith("json "))
        try:
            report = json.loads(text)
        except ValueError as e:
            yield False, "report: %s; %s" % (
                e, " | ".join(x for x in part if x.startswith("text"))[-400:])
            return
        door = report["capture"]["hooks"]["reads"]
        claims = CLAIMS.get(door, {})
        have = {(f["dev"], str(f["inode"])): f for f in report["files"]}
        wrong, judged = [], 0
        for line in part:
            w = line.split()
            if w[0] != "truth" or len(w) != 8:
                continue
            kind, dev, inode, calls, size = w[1], int(w[2]), w[3], int(w[4]), int(w[5])
            if claims.get(kind) != EXACT:
                continue
            f = have.get((dev, inode))
            judged += 1
            if not f or f["reads"] != calls or f["bytes"] != size:
                wrong.append("%s %s: %s reads and %s bytes for %d and %d" % (
                    kind, w[7], f and f["reads"], f and f["bytes"], calls, size))
        yield judged > 0 and not wrong, \
            "report by %s: reads and bytes of %d files are the job's own%s" % (
                door, judged - len(wrong), "; " + wrong[0] if wrong else "")


def table(kernels):
    """Rows for docs/kernels.md."""
    out = ["| kernel | door | opens | exact | at most | not seen |", "|---|---|---|---|---|---|"]
    for k in kernels:
        for d in CLAIMS:
            hooks, sums, *_ = k.door(d)
            opened = hooks.get("reads") == d
            kinds = {c: [n for n in KINDS if CLAIMS[d][n] == c] for c in (EXACT, DATA, UNSEEN)}
            out.append("| %s | %s | %s | %s |" % (
                k.release, d, "yes" if opened else "no",
                " | ".join(", ".join(kinds[c]) if opened else "" for c in (EXACT, DATA, UNSEEN))))
    out += ["", "| kernel | program | instructions | runs | ns per run |", "|---|---|---|---|---|"]
    for k in kernels:
        for d in CLAIMS:
            for prog, (insns, runs, ns) in sorted(k.door(d)[5].items()):
                if runs > 10000:
                    out.append("| %s, %s | %s | %d | %d | %.0f |" % (
                        k.release, d, prog, insns, runs, ns / runs))
    return "\n".join(out) + "\n"


def costs(kernel):
    """Rows: CPU time of a read (of instructions, where the clock counts them); of
    several runs the least."""
    least = {}
    for line in kernel.parts.get("cost", []):
        w = line.split()
        if w[0] == "cpu":
            key = w[1], w[2]
            least[key] = min(least.get(key, 1e18), int(w[4]) / int(w[3]))
    out = []
    base = least.get(("off", "traced"))
    for d in ("off", "none") + tuple(d for d in CLAIMS if d != "none"):
        if (d, "traced") in least:
            out.append("| %s | %s | %s |" % (
                kernel.release, d, " | ".join(
                    "%.0f" % v if d == "off" else "%+.0f" % (v - base)
                    for v in (least[d, "traced"], least[d, "other"]))))
    return "\n".join(out) + "\n"
