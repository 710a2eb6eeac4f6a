# SPDX-License-Identifier: BSD-2-Clause
"""Stretches of time, for those who judge by a job's log."""

import bisect


class Spans:
    """Disjoint spans in order of time."""

    def __init__(self, pairs=()):
        self.v = []
        for b, e in sorted(pairs):
            if e <= b:
                continue
            if self.v and b <= self.v[-1][1]:
                self.v[-1][1] = max(self.v[-1][1], e)
            else:
                self.v.append([b, e])
        self.starts = [s[0] for s in self.v]

    def total(self):
        return sum(e - b for b, e in self.v)

    def within(self, begin, end):
        """Pieces inside [begin, end)."""
        i = max(bisect.bisect_right(self.starts, begin) - 1, 0)
        while i < len(self.v) and self.v[i][0] < end:
            b, e = max(self.v[i][0], begin), min(self.v[i][1], end)
            if e > b:
                yield b, e
            i += 1

    def overlap(self, begin, end):
        return sum(e - b for b, e in self.within(begin, end))

    def gaps(self, begin, end):
        at = begin
        for b, e in self.within(begin, end):
            if b > at:
                yield at, b
            at = e
        if at < end:
            yield at, end

    def common(self, other):
        return sum(other.overlap(b, e) for b, e in self.v)
