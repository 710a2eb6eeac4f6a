# SPDX-License-Identifier: BSD-2-Clause
"""What a GPU did, by torch.profiler's Chrome trace, on the clock of the report.

The trace's own clock differs between versions (micro-seconds since the epoch, or
since `baseTimeNanoseconds`). So the loop leaves marks in it: ranges whose name
holds CLOCK_MONOTONIC at that moment. A mark is written a little after its time was
read, never before; the largest difference is the nearest.
"""

import json

MARK = "pt_mark "
KERNEL, COPY, SET = {"kernel"}, {"gpu_memcpy", "memcpy"}, {"gpu_memset", "memset"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime", "driver"}
DRIFT_NS = 1000000      # more between the marks, and the clocks do not agree


class NoTruth(Exception):
    """The trace cannot be used; why."""


def direction(name):
    """Of a copy, by what the profiler calls it: "Memcpy HtoD (Pageable -> Device)"."""
    for text, kind in (("HtoD", "h2d"), ("DtoH", "d2h")):
        if text in name:
            return kind
    return "other"


def offset_of(events):
    """Nanoseconds to add to a time of the trace."""
    found = [(e["ts"], int(e["name"][len(MARK):].split()[0]) - e["ts"] * 1000)
             for e in events
             if e.get("ph") == "X" and str(e.get("name", "")).startswith(MARK)
             and e.get("cat") != "gpu_user_annotation"]
    if len(found) < 2:
        raise NoTruth("the trace holds no marks of the loop")
    found.sort()
    half = len(found) // 2
    first = max(o for _, o in found[:half])
    last = max(o for _, o in found[half:])
    if abs(first - last) > DRIFT_NS:
        raise NoTruth("the trace's clock drifts by %.1f ms" % (abs(first - last) / 1e6))
    return max(first, last)


class Truth:
    """Of one trace: spans [(begin, end)] in which the device worked, kernels
    [time of the launching call], copies [(time of the call, direction, bytes)]."""

    def __init__(self, events):
        self.spans, self.kernels, self.copies = [], [], []
        events = [e for e in events if isinstance(e, dict)]
        self.offset = offset_of(events)
        calls = {}
        work = []
        for e in events:
            cat = str(e.get("cat", "")).lower()
            if e.get("ph") != "X":
                continue
            if cat in CALLS:
                c = e.get("args", {}).get("correlation")
                if c is not None:
                    calls[c] = min(e["ts"], calls.get(c, e["ts"]))
            elif cat in KERNEL | COPY | SET:
                work.append((cat, e))
        for cat, e in work:
            args = e.get("args", {})
            begin = self.ns(e["ts"])
            self.spans.append((begin, begin + int(e.get("dur", 0) * 1000)))
            # without its call, the work itself is the nearest
            at = self.ns(calls.get(args.get("correlation"), e["ts"]))
            if cat in KERNEL:
                self.kernels.append(at)
            elif cat in COPY:
                self.copies.append((at, direction(e.get("name", "")),
                                    int(args.get("bytes", 0))))
        if not self.spans:
            raise NoTruth("the trace holds no work of a GPU")
        self.spans.sort()

    def ns(self, ts):
        return int(ts * 1000) + self.offset

    def busy(self, begin, end):
        """Share of [begin, end) in which something ran on the device."""
        total, upto = 0, begin
        for a, b in self.spans:
            a, b = max(a, upto), min(b, end)
            if b > a:
                total, upto = total + b - a, b
        return total / (end - begin)


def count(times, begin, end, slack=DRIFT_NS):
    """(how many in [begin, end), how many so near its ends that the clocks
    cannot tell)."""
    inside = sum(begin <= t < end for t in times)
    edge = sum(abs(t - begin) <= slack or abs(t - end) <= slack for t in times)
    return inside, edge


def read(path):
    """The Truth of a trace file; NoTruth says why there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            data = json.load(f)
        return Truth(data["traceEvents"] if isinstance(data, dict) else data)
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise NoTruth("the profiler's trace cannot be read: %s" % e) from e
