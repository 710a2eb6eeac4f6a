# SPDX-License-Identifier: BSD-2-Clause
"""What a job's own log says about it, by the fixed rules of docs/scenarios.md.

Nothing here looks at a report. Times are CLOCK_MONOTONIC nanoseconds.
"""

import bisect
import csv
import glob
import statistics

import truth as truth_log
from spans import Spans

MARGIN = 0.03        # of wall: nearer to a threshold, both sides are right
STARVED = 0.10       # of wall; as for every other loss
SEVERITY = ((0.10, "info"), (0.20, "warning"), (0.30, "critical"))
LEAD_CAUSE = 0.08    # of the data wait: causes as near as this are both right
RUN_QUEUE = 0.25     # of the loading's CPU and run-queue time: oversubscribed
RUN_QUEUE_MARGIN = 0.08
FREE_CORES = 0.6, 0.9  # below: no room for one more worker; above: there is
SLOW_RATIO = 1.5, 0.15  # of the peers' median, margin
SLOW_CHARGE = 0.5, 0.1  # of the waiting, margin
SLOW_ITEM_MS = 1000
SLOW_FILE = 3.0, 1.0    # times what as much of others takes, margin
SLOW_READS, SLOW_READ_MS = 3, 10
TAIL_FACTOR, TAIL_PART = 4.0, 0.2  # a few batches of many times the median ...
TAIL_NEAR = 0.2         # ... so near to a limit of theirs both sides are right
TAIL_CHANCE = 0.05      # that all of them are of one worker
SYNC_NEAR_NS = 1000000  # a sync returns so soon behind the work it waited for
BY_BOTH = "host", "sync"  # either change wins the same idle time back, or half of it
HOST_NS = 300000, 1000000  # an idle stretch: shorter is launching, longer host work

CAUSE_OF = {"read": "disk", "sleep": "sleep", "lock": "lock", "net": "network",
            "fault": "page_fault", "cpu": "run_queue"}
ROOT_OF = {"disk": "io_bound", "page_fault": "page_fault_io",
           "network": "network_bound", "lock": "lock_bound",
           "handover": "ipc_bound"}


class Device:
    """The simulated device's log of one process."""

    def __init__(self, pattern, begin, end):
        kernels, copies, self.returns, self.known = [], [], [], False
        self.begin, self.end = begin, end
        for path in glob.glob(pattern):
            with open(path, encoding="ascii", errors="replace") as f:
                for row in csv.reader(f):
                    if len(row) != 8 or not row[1].lstrip("-").isdigit():
                        continue
                    b, e = int(row[3]), int(row[4])
                    if e <= begin or b >= end:
                        continue
                    self.known = True
                    if row[0] == "host":
                        self.returns.append(e)
                    elif row[0] in ("kernel", "memset", "d2d"):
                        kernels.append((max(b, begin), min(e, end)))
                    else:
                        copies.append((max(b, begin), min(e, end)))
        self.compute, self.busy = Spans(kernels), Spans(kernels + copies)
        self.copies = Spans(copies)
        self.returns.sort()
        self.idle = Spans(self.busy.gaps(begin, end)) if self.known else None

    def late_share(self):
        """How long calls were held behind the end of all device work: the
        simulated device is a thread, and gets a core late on a busy machine.
        From outside, the device seems busy until the call returns."""
        late = 0
        for at in self.returns:
            i = bisect.bisect_right(self.busy.starts, at) - 1
            if i >= 0 and self.busy.v[i][1] < at <= self.end and \
                    at - self.busy.v[i][1] < SYNC_NEAR_NS * 50:
                late += at - self.busy.v[i][1]
        return late / (self.end - self.begin)

    def busy_share(self):
        return self.busy.total() / (self.end - self.begin)

    def follows_sync(self, at):
        """Had a host call just returned when the device fell idle? The device
        is idle from its last operation, whose end lets the call return."""
        i = bisect.bisect_left(self.returns, at)
        return i < len(self.returns) and self.returns[i] - at < SYNC_NEAR_NS


class Scenario(truth_log.Truth):
    """A truth log with phases, and the device's log beside it."""

    def __init__(self, path, begin, end, device, cores, foreign=0.0):
        """foreign: cores that others used meanwhile, the tracer included."""
        super().__init__(path, begin, end)
        self.cores, self.foreign = cores, foreign
        self.device = Device(device, begin, end)
        self.read_rest(path)
        self.wall = end - begin

    def read_rest(self, path):
        import json

        self.pauses, self.updates, self.memory, self.epochs = [], [], [], []
        self.args = {}
        with open(path, encoding="utf-8") as f:
            for line in f:
                r = json.loads(line)
                if "pause" in r:
                    self.pauses.append(r)
                elif "update" in r:
                    self.updates.append(r["update"])
                elif "memory" in r:
                    self.memory.append(r)
                elif "epoch" in r:
                    self.epochs.append(r)
                elif "truth" in r:
                    self.args = r["args"]

    # ---- where the wall time goes

    def waits(self):
        return Spans((max(s["wait_begin"], self.begin),
                      min(s["wait_end"], self.end)) for s in self.steps)

    def paused(self, what):
        return Spans((max(p["begin"], self.begin), min(p["end"], self.end))
                     for p in self.pauses if p["pause"] == what
                     and p["end"] > self.begin and p["begin"] < self.end)

    def losses(self, host_ns=HOST_NS[0]):
        """Shares of wall, by what the device was idle for. An idle device begins
        what is put in its queue at once: in a stretch of host_ns or more the host
        has not called it, and did something else. Behind a sync that is the
        sync's doing, too, as far as work could have been queued instead: a step's
        at each of them, and over all no more than there is."""
        out = dict.fromkeys(("starved", "transfer", "sync", "launch", "host",
                             "checkpoint", "collective", "no_demand"), 0)
        if not self.device.known:
            return out
        d = self.device
        waits = self.waits()
        out["starved"] = d.idle.common(waits)
        out["transfer"] = d.copies.total() - d.copies.common(d.compute)
        named = waits.v[:]
        for what, name in (("checkpoint", "checkpoint"),
                           ("barrier", "collective"),
                           ("request", "no_demand")):
            spans = self.paused(what)
            out[name] = d.idle.common(spans)
            named += spans.v
        others = Spans(named)
        step = d.busy.total() / max(len(self.boundaries()), 1)
        hidden = 0
        for b, e in d.idle.v:
            rest = e - b - others.overlap(b, e)
            kind = "sync" if d.follows_sync(b) else "launch"
            if rest < host_ns:
                out[kind] += rest
                continue
            out["host"] += rest
            hidden += min(rest, step) if kind == "sync" else 0
        out["sync"] += min(hidden, d.busy.total())
        return {k: v / self.wall for k, v in out.items()}

    # ---- what the waits were for

    def timelines(self):
        """Per worker: spans of its phases with kind and CPU share."""
        lines = {}
        for s in self.all:
            lines.setdefault(s["worker"], []).append(s)
        for v in lines.values():
            v.sort(key=lambda s: s["load_begin"])
        return lines

    @staticmethod
    def charge(out, load, begin, end):
        """Charge [begin, end), inside one batch's making, to its phases."""
        left = end - begin
        if "totals" in load:  # the C job: no intervals, only sums
            whole = max(load["load_end"] - load["load_begin"], 1)
            cpu = load["load_cpu"]
            queued = whole - cpu
            for kind, (ns, used) in load["totals"].items():
                out[CAUSE_OF[kind]] += left * (ns - used) / whole
                queued -= ns - used
            out["cpu"] += left * cpu / whole
            out["run_queue"] += left * max(queued, 0) / whole
            return
        for kind, b, e, cpu in load["phases"]:
            part = max(0, min(e, end) - max(b, begin))
            if part <= 0:
                continue
            share = min(cpu / (e - b), 1) if e > b else 1
            out["cpu"] += part * share
            out[CAUSE_OF[kind]] += part * (1 - share)
            left -= part
        out["cpu"] += left  # between phases: the interpreter

    def causes(self, through=False):
        """Shares of the data wait, by what the needed batch's maker did.

        What passes behind the making is the hand-over. A sender's thread
        shares its process, its interpreter lock and its core with the making
        of the next batch: `through` charges the hand-over to what was being
        made meanwhile, the other right reading of the same time.
        """
        out = dict.fromkeys(("cpu", "run_queue", "disk", "page_fault",
                             "network", "lock", "sleep", "handover", "idle"),
                            0.0)
        lines = self.timelines()
        for s in self.steps:
            begin = max(s["wait_begin"], self.begin)
            end = min(s["wait_end"], self.end)
            if end <= begin:
                continue
            made = min(max(s["load_end"], begin), end)
            covered, last = 0, end if through else made
            for load in lines[s["worker"]]:
                b = max(load["load_begin"], begin)
                e = min(load["load_end"], last)
                if e > b:
                    self.charge(out, load, b, e)
                    covered += e - b
            if not through:
                out["idle"] += max(made - begin - covered, 0)
                out["handover"] += end - made
            else:
                out["handover"] += max(end - begin - covered, 0)
        total = sum(out.values())
        return {k: v / total for k, v in out.items()} if total else out

    def slow_worker(self):
        """(index, ratio to its peers' median at its 40th and at its 60th
        percentile, share of the waiting that was for the making of its
        batches). What passes behind the making is the hand-over's, however
        slow this worker may be. A worker that is slow for half of its
        batches has no median to speak of: hence the two percentiles."""
        times = {w: [] for w in self.workers}
        waited = dict.fromkeys(self.workers, 0)
        total = 0
        for s in self.steps:
            if s["worker"] in times:
                times[s["worker"]].append(s["load_end"] - s["load_begin"])
                made = min(max(s["load_end"], s["wait_begin"]), s["wait_end"])
                waited[s["worker"]] += made - s["wait_begin"]
                total += s["wait_end"] - s["wait_begin"]
        times = {w: sorted(v) for w, v in times.items() if v}
        medians = {w: statistics.median(v) for w, v in times.items()}
        best = (None, 0, 0, 0)
        for w, v in times.items():
            peers = [medians[o] for o in medians if o != w]
            if not peers or not total:
                continue
            peer = statistics.median(peers)
            low, high = (v[int(q * (len(v) - 1))] / peer for q in (.4, .6))
            if high > best[2]:
                best = (w, low, high, waited[w] / total)
        return best

    def slow_item_share(self):
        """Share of the waiting whose batch held an item above a second."""
        waits = [(s["wait_end"] - s["wait_begin"],
                  max(s["items"], default=0)) for s in self.steps]
        total = sum(w for w, _ in waits)
        return sum(w for w, ms in waits if ms > SLOW_ITEM_MS) / total \
            if total else 0

    def slower_files(self):
        """{number of a file: its median over what as many bytes of others take}, of
        files that were read three times or more, ten milliseconds each. Others'
        time for as many bytes: as it is where they are half to twice as large,
        else longer by as much as they are smaller."""
        reads = {}
        for s in self.all:
            if self.begin <= s["load_end"] < self.end:
                for number, size, b, e in s.get("files", ()):
                    reads.setdefault(number, []).append((size, (e - b) / 1e6))
        ratios = {}
        for number, own in reads.items():
            size = statistics.median(n for n, _ in own)
            usual = statistics.median(ms for _, ms in own)
            others = [ms if size / 2 <= n <= 2 * size else ms * max(1, size / n)
                      for o, v in reads.items() if o != number for n, ms in v]
            if len(own) >= SLOW_READS and usual >= SLOW_READ_MS and others:
                ratios[number] = usual / statistics.median(others)
        return ratios

    def slow_file_shares(self):
        """{number: (that ratio, share of the waiting in which the needed batch's
        maker read the file)}."""
        ratios, spans = self.slower_files(), {}
        for s in self.all:
            for number, _, b, e in s.get("files", ()):
                if number in ratios:
                    spans.setdefault((s["worker"], number), []).append((b, e))
        spans = {k: Spans(v) for k, v in spans.items()}
        total, out = 0, dict.fromkeys(ratios, 0)
        for s in self.steps:
            total += s["wait_end"] - s["wait_begin"]
            for number in ratios:
                v = spans.get((s["worker"], number))
                if v:
                    out[number] += v.overlap(s["wait_begin"], s["wait_end"])
        return {k: (ratios[k], v / total) for k, v in out.items()} if total else {}

    def slow_file_labels(self):
        """(may a file be the root, must it)"""
        may = must = False
        for ratio, share in self.slow_file_shares().values():
            may |= ratio >= SLOW_FILE[0] - SLOW_FILE[1] and \
                share >= SLOW_CHARGE[0] - SLOW_CHARGE[1]
            must |= ratio >= SLOW_FILE[0] + SLOW_FILE[1] and \
                share >= SLOW_CHARGE[0] + SLOW_CHARGE[1]
        return may, must

    def tail(self, factor):
        """Of the batches that take so many times the median: their part of all,
        their share of the waiting, how many, and the workers that made them."""
        made = [s for s in self.steps if s["worker"] in self.workers]
        times = [s["load_end"] - s["load_begin"] for s in made]
        total = sum(s["wait_end"] - s["wait_begin"] for s in made)
        if not total:
            return 0, 0, 0, set()
        limit = factor * statistics.median(times)
        slow = [s for s, t in zip(made, times) if t >= limit]
        return (len(slow) / len(made),
                sum(s["wait_end"] - s["wait_begin"] for s in slow) / total,
                len(slow), {s["worker"] for s in slow})

    def tail_labels(self):
        """(roots that a few slow batches make right, whether no other is)"""
        def holds(tail, sign):
            return tail[2] and tail[0] <= TAIL_PART * (1 - sign * TAIL_NEAR) and \
                tail[1] >= SLOW_CHARGE[0] + sign * SLOW_CHARGE[1]

        tails = [self.tail(TAIL_FACTOR * x) for x in (1 - TAIL_NEAR, 1, 1 + TAIL_NEAR)]
        may = [t for t in tails if holds(t, -1)]
        must = all(holds(t, 1) for t in tails)
        if not may:
            return set(), False
        if any(len(t[3]) > 1 for t in may) or len(self.workers) < 2:
            return {"slow_item"}, must
        chance = len(self.workers) ** (1 - may[0][2])
        return {"slow_worker"} | \
            ({"slow_item"} if chance > TAIL_CHANCE else set()), must

    def free_cores(self):
        """Cores that loading and other jobs leave free."""
        cpu = sum(s["load_cpu"] for s in self.all
                  if self.begin <= s["load_end"] < self.end)
        return max(self.cores - cpu / self.wall - self.foreign, 0)

    # ---- labels

    def cpu_labels(self, causes):
        work = causes["cpu"] + causes["run_queue"]
        queued = causes["run_queue"] / work if work else 0
        out = set()
        if queued >= RUN_QUEUE - RUN_QUEUE_MARGIN:
            out.add("cpu_oversubscribed")
        if queued <= RUN_QUEUE + RUN_QUEUE_MARGIN:
            free = self.free_cores()
            if free >= FREE_CORES[0]:
                out.add("too_few_workers")
            if free <= FREE_CORES[1]:
                out.add("cpu_bound")
        return out

    def data_labels(self):
        """Roots that explain starvation here."""
        if not self.workers:
            return {"main_thread_loading"}
        out = set()
        slow = self.slow_item_share()
        if slow >= SLOW_CHARGE[0] - SLOW_CHARGE[1]:
            out.add("slow_file")
            if slow > SLOW_CHARGE[0] + SLOW_CHARGE[1]:
                return out
        may, must = self.slow_file_labels()
        if may:
            out.add("slow_file")
            if must:
                return out
        roots, must = self.tail_labels()
        out |= roots
        if must:
            return out
        _, low, high, held = self.slow_worker()
        if high >= SLOW_RATIO[0] - SLOW_RATIO[1] and \
                held >= SLOW_CHARGE[0] - SLOW_CHARGE[1]:
            out.add("slow_worker")
            if low >= SLOW_RATIO[0] + SLOW_RATIO[1] and \
                    held >= SLOW_CHARGE[0] + SLOW_CHARGE[1]:
                return out
        for through in (False, True):
            out |= self.resource_labels(self.causes(through))
        return out

    def resource_labels(self, causes):
        """Roots by the resource that the makers used or waited for."""
        out = set()
        groups = {k: causes[k] for k in ROOT_OF}
        groups["compute"] = causes["cpu"] + causes["run_queue"]
        groups["sleep"] = causes["sleep"] + causes["idle"]
        top = max(groups.values())
        for name, share in groups.items():
            if share < top - LEAD_CAUSE:
                continue
            if name == "compute":
                out |= self.cpu_labels(causes)
            elif name == "sleep":  # a cause that none of the others is
                out |= {"gpu_starved", "too_few_workers"}
            else:
                out.add(ROOT_OF[name])
            if name == "handover" and self.free_cores() <= FREE_CORES[0]:
                out.add("cpu_oversubscribed")  # it may have lacked a core
        return out

    def roots(self):
        """The root verdicts that are right for this run."""
        return set.union(*(self.roots_by(self.losses(ns)) for ns in HOST_NS))

    def roots_by(self, losses):
        top = max(losses.values())
        if top < STARVED - MARGIN:
            return {"balanced"}
        out = {"balanced"} if top < STARVED + MARGIN else set()
        for name, share in losses.items():
            least = top - MARGIN
            if name in BY_BOTH and max(losses[k] for k in BY_BOTH) == top:
                least = top / 2
            if share < max(least, STARVED - MARGIN):
                continue
            out |= {"starved": self.data_labels,
                    "transfer": lambda: {"transfer_bound"},
                    "sync": lambda: {"sync_bound"},
                    "launch": lambda: {"launch_bound"},
                    "host": lambda: {"host_bound"},
                    "checkpoint": lambda: {"checkpoint_stall"},
                    "collective": lambda: {"rank_straggler"},
                    "no_demand": lambda: {"no_demand"}}[name]()
        return out

    def severities(self):
        """The right severities of gpu_starved; None: it may be missing."""
        starved = self.losses()["starved"]
        out = set()
        for share in (starved - MARGIN, starved, starved + MARGIN):
            word = None
            for limit, name in SEVERITY:
                if share >= limit:
                    word = name
            out.add(word)
        return out

    def boundaries(self):
        """When steps began, inside the window."""
        return [s["wait_begin"] for s in self.steps if s.get("first", True)
                and self.begin <= s["wait_begin"] < self.end]
