# SPDX-License-Identifier: BSD-2-Clause
"""What a composed job's own log says about it, by the rules of docs/composed-jobs.md.

Nothing here looks at a report. Times are CLOCK_MONOTONIC nanoseconds.
"""

import bisect
import collections
import csv
import glob
import json
import statistics

import grammar
from spans import Spans

NEAR = 0.2            # of a threshold: both sides of it are right
LOSS = 0.10           # of wall: less is no loss
QUIET = 0.05          # waits for less than this ...
BUSY = 0.90           # ... and a device this busy: nothing to warn of
HALF = 0.5            # a supplier, a slow worker, a lock is to blame from here on
SLOW = 1.5            # times its peers' median: a slow worker
TAIL, TAIL_PART = 4.0, 0.2  # times the median; no more of the batches than this
RUN_QUEUE = 0.25      # of the makers' CPU and run-queue time
FREE = 0.75           # cores: room for one more worker that computes
HELD = 0.7            # of the time somebody has the lock
SYNC_NEAR_NS = 1000000
SOCKETS = ("unix_out", "tcp_out")
THREADS = ("pythread", "threadpool")
CAUSE = {"read": "disk", "fault": "page_fault", "net": "network", "sleep": "sleep",
         "lock": "lock", "cpu": "run_queue", "child": "run_queue", "put": "handover"}
TIMELINE = frozenset(CAUSE) | {"take"}
ROOT = {"disk": "io_bound", "page_fault": "page_fault_io", "network": "network_bound",
        "lock": "lock_bound", "handover": "ipc_bound"}


class Row:
    __slots__ = ("kind", "begin", "end", "cpu", "batch", "more", "who")

    def __init__(self, values, who):
        self.kind, self.begin, self.end, self.cpu, self.batch, self.more = values
        self.who = who


class Log:
    """All rows of a job, by thread and by batch."""

    def __init__(self, path):
        self.threads = collections.defaultdict(list)
        self.batches = collections.defaultdict(list)
        self.trainers, self.done = {}, set()
        who = None
        with open(path, encoding="utf-8") as f:
            self.head = json.loads(f.readline())
            for line in f:
                v = json.loads(line)
                if isinstance(v, list):
                    r = Row(v, who)
                    self.threads[who].append(r)
                    if r.kind in ("made", "formed"):
                        self.batches[r.batch].append(r)
                elif "trainer" in v:
                    self.trainers[v["trainer"]] = who
                elif "done" in v:
                    self.done.add(who)
                else:
                    who = (v["pid"], v["tid"])
                    self.threads[who] = []
        self.lines, self.starts = {}, {}
        for w, rows in self.threads.items():
            line = sorted((r for r in rows if r.kind in TIMELINE), key=lambda r: r.begin)
            self.lines[w], self.starts[w] = line, [r.begin for r in line]


    def before(self, take):
        """The stages that had a batch before this thread took it."""
        return [r for r in self.batches.get(take.batch, ())
                if r.who != take.who and r.end <= take.end]


class Device:
    def __init__(self, pattern, begin, end):
        work, copies, compute, self.returns = [], [], [], []
        for path in glob.glob(pattern):
            with open(path, encoding="ascii", errors="replace") as f:
                for row in csv.reader(f):
                    if len(row) != 8 or not row[3].isdigit() or not row[4].isdigit():
                        continue
                    b, e = int(row[3]), int(row[4])
                    if e <= begin or b >= end:
                        continue
                    if row[0] == "host":
                        self.returns.append(e)
                        continue
                    span = max(b, begin), min(e, end)
                    work.append(span)
                    (compute if row[0] in ("kernel", "memset", "d2d") else
                     copies).append(span)
        self.known = bool(work)
        self.busy, self.copies, self.compute = Spans(work), Spans(copies), Spans(compute)
        self.idle = Spans(self.busy.gaps(begin, end))
        self.returns.sort()

    def follows_sync(self, at):
        i = bisect.bisect_left(self.returns, at)
        return i < len(self.returns) and self.returns[i] - at < SYNC_NEAR_NS


class Truth:
    """One trainer in one window."""

    def __init__(self, log, spec, begin, end, stem, rank=0, cores=2, foreign=0.0):
        self.log, self.spec, self.begin, self.end = log, spec, begin, end
        self.wall, self.cores, self.foreign = end - begin, cores, foreign
        self.main = log.trainers[rank]
        self.rows = [r for r in log.threads[self.main]
                     if r.begin < end and r.end > begin]
        self.device = Device("%s.gpu.%d.csv" % (stem, self.main[0]), begin, end)
        self.obtains = [r for r in self.rows if r.kind == "obtain"]
        self.waits = self.spans("obtain")
        self.charges = self.walk()

    def spans(self, *kinds):
        return Spans((max(r.begin, self.begin), min(r.end, self.end))
                     for r in self.rows if r.kind in kinds)

    def wait_share(self):
        return self.waits.total() / self.wall

    def busy_share(self):
        return self.device.busy.total() / self.wall

    def steps(self):
        """Every count of steps that is right."""
        def began(*kinds):
            return sum(r.kind in kinds and self.begin <= r.begin < self.end
                       for r in self.rows)
        out = {began("step")}
        out.add(began("step", "micro"))
        if self.spec["feature"] == "eval":
            out |= {n + began("eval") for n in tuple(out)}
        return out

    # ---- what the waits were for: {(who, cause): ns}

    def charge(self, out, who, begin, end, depth=0):
        """What a thread did in [begin, end), through those that it waited for."""
        line, starts = self.log.lines.get(who, ()), self.log.starts.get(who, ())
        # between phases: the interpreter; in a pool's process, what sends results
        between = "handover" if self.spec["transport"] == "procpool" and \
            who[0] != self.main[0] else "cpu"
        at = begin
        i = max(bisect.bisect_right(starts, begin) - 2, 0)
        while i < len(line) and line[i].begin < end:
            r = line[i]
            i += 1
            b, e = max(r.begin, at), min(r.end, end)
            if e <= b:
                continue
            out[who, between] += b - at
            at = e
            if r.kind == "take":
                self.follow(out, r, b, e, depth + 1)
                continue
            whole = max(r.end - r.begin, 1)
            # what computes while it hands over (pickles) hands over
            cpu = 0 if r.kind == "put" else min((r.cpu or 0) / whole, 1)
            out[who, "cpu"] += (e - b) * cpu
            off = (e - b) * (1 - cpu)
            if r.kind == "cpu":
                off -= self.behind(out, who, b, e, off)
            out[who, CAUSE[r.kind]] += off
        out[who, "cpu"] += max(end - at, 0)

    def follow(self, out, take, begin, end, depth=0):
        """A wait for a batch: its maker's time until it was made, then the way."""
        rows = self.log.before(take)
        if not rows or depth > 4:
            out[take.who, "unknown"] += end - begin
            return
        last = max(rows, key=lambda r: r.end)
        made = min(max(last.end, begin), end)
        born = self.born(last.who, begin)
        if born > begin:
            out[last.who, "restart"] += min(born, made) - begin
        self.charge(out, last.who, min(max(begin, born), made), made, depth)
        out[last.who, "handover"] += end - made - self.held(out, last.who[0], made, end)

    def behind(self, out, who, begin, end, most):
        """A thread that computes and is off its core while another of its process faults,
        or computes in Python, waits for the interpreter, which that one has. MOST ns at
        most are charged so."""
        keeps = {"fault": "page_fault"}
        if self.spec["work"] == "gil":
            keeps["cpu"] = "cpu"
        has = [(max(r.begin, begin), min(r.end, end), w, keeps[r.kind])
               for w, line in self.log.lines.items() if w[0] == who[0] and w != who
               for r in line[max(bisect.bisect_right(self.log.starts[w], begin) - 2, 0):
                             bisect.bisect_left(self.log.starts[w], end)]
               if r.kind in keeps and min(r.end, end) > max(r.begin, begin)]
        whole = sum(e - b for b, e, *_ in has)
        for b, e, w, cause in has:
            out[w, cause] += (e - b) * min(1, most / whole)
        return min(whole, most)

    def held(self, out, pid, begin, end):
        """A process that faults in its next batch keeps its interpreter from handing on
        the last one. Without the faults both would be there; handing on sooner would
        gain nothing, for the next one takes as long."""
        ns = 0
        for who, line in self.log.lines.items():
            starts = self.log.starts[who]
            for r in line[max(bisect.bisect_right(starts, begin) - 2, 0):
                          bisect.bisect_left(starts, end)] if who[0] == pid else ():
                b, e = max(r.begin, begin), min(r.end, end)
                if r.kind == "fault" and e > b:
                    cpu = (e - b) * min((r.cpu or 0) / max(r.end - r.begin, 1), 1)
                    out[who, "cpu"] += cpu
                    out[who, CAUSE[r.kind]] += e - b - cpu
                    ns += e - b
        return min(ns, end - begin)

    def born(self, who, default):
        """A maker's first row, where it began in the trace."""
        line = self.log.lines.get(who)
        return line[0].begin if line and line[0].begin > self.begin else default

    def walk(self):
        out = collections.Counter()
        restarts = self.spans("restart")
        for r in self.obtains:
            b, e = max(r.begin, self.begin), min(r.end, self.end)
            for p, q in restarts.within(b, e):
                out[self.main, "restart"] += q - p
                b = q
            if any(x.who == self.main for x in self.log.batches.get(r.batch, ())):
                self.charge(out, self.main, b, e)
            else:
                self.follow(out, r, b, e)
        return out

    def causes(self):
        total = sum(self.charges.values())
        out = collections.Counter()
        for (_, cause), ns in self.charges.items():
            out[cause] += ns / total if total else 0
        return out

    def suppliers(self):
        """[(share of the wait, who)], the largest first. A batch on its way is made: that
        part of the wait is nobody's."""
        total = sum(self.charges.values())
        out = collections.Counter()
        for (who, cause), ns in self.charges.items():
            if cause != "handover":
                out[who] += ns
        return sorted(((ns / total, w) for w, ns in out.items()), reverse=True) \
            if total else []

    # ---- roots

    def losses(self):
        """Shares of wall that the device idled, by what the host was at."""
        d, out, named = self.device, {}, []
        for name, kinds in (("starved", ("obtain",)), ("host", ("pause", "host")),
                            ("checkpoint", ("ckpt",)), ("collective", ("meet",)),
                            ("no_demand", ("request",))):
            s = self.spans(*kinds)
            out[name] = d.idle.common(s)
            named += s.v
        out["transfer"] = d.copies.total() - d.copies.common(d.compute)
        out["sync"] = out["launch"] = 0
        others = Spans(named)
        for b, e in d.idle.v:
            rest = e - b - others.overlap(b, e)
            out["sync" if d.follows_sync(b) else "launch"] += rest
        return {k: v / self.wall for k, v in out.items()}

    def made(self, kind="made"):
        return [r for rows in self.log.batches.values() for r in rows
                if r.kind == kind and self.begin <= r.end < self.end]

    def slow_worker(self):
        """(ratio to its peers, share of the wait, who), or None: the slowest maker; where
        makers are started anew, the slowest place among them."""
        anew = self.spec["feature"] == "restart"
        times, whos = collections.defaultdict(list), collections.defaultdict(set)
        for r in self.made():
            place = r.more if anew else r.who
            times[place].append(r.end - r.begin)
            whos[place].add(r.who)
        medians = {w: statistics.median(v) for w, v in times.items()}
        shares = {w: s for s, w in self.suppliers()}
        best = None
        for w, m in medians.items():
            peers = [medians[o] for o in medians if o != w]
            if peers:
                found = (m / max(statistics.median(peers), 1),
                         sum(self.share_of(x, shares) for x in whos[w]), w)
                best = max(best, found) if best else found
        return best

    def share_of(self, who, shares):
        """Of the wait, with the helpers in the same process where it is not the
        trainer's own."""
        if who[0] == self.main[0]:
            return shares.get(who, 0)
        return sum(s for w, s in shares.items() if w[0] == who[0])

    def slow_items(self):
        """(share of the batches that are slow for their maker, share of the wait that
        was for them)"""
        made, times = self.made(), collections.defaultdict(list)
        if len(made) < 10:
            return 0, 0
        for r in made:
            times[r.who].append(r.end - r.begin)
        usual = {w: statistics.median(v) for w, v in times.items()}
        slow = {r.batch for r in made if r.end - r.begin > TAIL * usual[r.who]}
        part = len(slow) / len(made)
        times = Spans((r.begin, r.end) for r in made if r.batch in slow)
        return part, times.common(self.waits) / max(self.waits.total(), 1)

    def lock_share(self):
        """(how much of the time somebody held the lock, of the makers' time for it,
        at it or under it)"""
        held, asked, whole = [], 0, 0
        for rows in self.log.threads.values():
            for r in rows:
                if r.end <= self.begin or r.begin >= self.end:
                    continue
                if r.kind == "held":
                    held.append((max(r.begin, self.begin), min(r.end, self.end)))
                if r.kind in ("held", "lock"):
                    asked += r.end - r.begin
                if r.kind == "made":
                    whole += r.end - r.begin
        return Spans(held).total() / self.wall, asked / max(whole, 1)

    def free_cores(self):
        cpu = 0
        for who, line in self.log.lines.items():
            cpu += sum((r.cpu or 0) for r in line if self.begin <= r.end < self.end)
        return max(self.cores - cpu / self.wall - self.foreign, 0)

    def cpu_roots(self, causes):
        out = set()
        work = causes["cpu"] + causes["run_queue"]
        queued = causes["run_queue"] / work if work else 0
        if self.spec["transport"] in THREADS and self.spec["work"] == "gil":
            out |= {"lock_bound", "cpu_bound"}  # one interpreter for all of them
            if self.spec["workers"] > 1:
                return out
        free = self.free_cores()
        most = queued
        if self.spec["work"] == "subprocess" and free <= FREE * (1 + NEAR) and work:
            # the two programs of a pipe compute side by side, and the log has their sum: it is
            # half of that at least by the clock, and the rest they waited for a core
            most = 1 - causes["cpu"] / work / 2
        if most >= RUN_QUEUE * (1 - NEAR):
            out.add("cpu_oversubscribed")
        if queued <= RUN_QUEUE * (1 + NEAR):
            if free >= FREE * (1 - NEAR):
                out.add("too_few_workers")
            # how many a service has is not the job's to set
            if free <= FREE * (1 + NEAR) or self.outside():
                out.add("cpu_bound")
        return out

    def outside(self):
        return self.spec["transport"].endswith("_out")

    def reads(self):
        return self.spec["work"] in ("read", "direct", "mapped", "http")

    def inline_roots(self):
        out = {"main_thread_loading"}
        if not self.reads():
            out.add("host_bound")  # nothing shows that it is data
        if self.sync_hides(self.waits.total() / self.wall):
            out.add("sync_bound")
        return out

    def particular(self, causes):
        """Roots that are more than a resource: (right ones, is one certainly it)."""
        out, sure = set(), False
        part, for_slow = self.slow_items()
        ratio, waited, _ = self.slow_worker() or (0, 0, None)
        held, at_it = self.lock_share()
        rows = (("loader_restart", (causes["restart"], HALF)),
                ("slow_item", (for_slow if 0 < part < TAIL_PART * (1 + NEAR) else 0, HALF),
                 (TAIL_PART, max(part, 0.001))),
                ("slow_worker", (ratio, SLOW), (waited, HALF)),
                ("lock_bound", (held if self.spec["workers"] > 1 else 0, HELD),
                 (at_it, HALF)))
        for name, *conditions in rows:
            if all(x >= limit * (1 - NEAR) for x, limit in conditions):
                out.add(name)
                sure |= all(x >= limit * (1 + NEAR) for x, limit in conditions)
        if "slow_item" in out:  # what makes them slow is right too: all ask for it
            out |= {ROOT[k] for k in ("disk", "page_fault", "network")
                    if causes[k] >= HALF * (1 - NEAR)}
            if self.late_service(causes) >= HALF * (1 - NEAR):
                out.add("network_bound")
        return out, sure

    def refills(self):
        """Which part of the wait ends with the first batch behind a restart: without that the
        makers were ahead (draw 1795747788: 161 steps, 265 without the restarts)."""
        restarts = self.spans("restart")
        first = [r for r in self.obtains if restarts.overlap(r.begin, r.end)]
        return sum(min(r.end, self.end) - max(r.begin, self.begin) for r in first) / \
            max(self.waits.total(), 1)

    def late_service(self, causes):
        """A service that sleeps is late to answer, as any store may be."""
        return causes["sleep"] if self.spec["transport"] in SOCKETS else 0

    def resource_roots(self, causes):
        out = set()
        groups = {k: causes[k] for k in ROOT}
        groups["compute"] = causes["cpu"] + causes["run_queue"]
        groups["sleep"], groups["restart"] = causes["sleep"], causes["restart"]
        top = max(groups.values())
        for name, share in groups.items():
            if share < top * (1 - NEAR) or not share:
                continue
            if name == "compute":
                out |= self.cpu_roots(causes)
            elif name == "sleep":  # nobody shares it: more help
                out |= {"too_few_workers", "gpu_starved"}
                if self.late_service(causes):
                    out.add("network_bound")
            elif name == "restart":
                out.add("loader_restart")
            else:
                out.add(ROOT[name])
                if name == "handover" and (self.spec["transport"] in THREADS or
                                           self.spec["stages"] > 1):
                    out.add("lock_bound")  # the interpreter's, which its threads share
                if name == "handover" and self.free_cores() <= FREE * (1 - NEAR):
                    out.add("cpu_oversubscribed")  # who takes it may have had no core
        return out

    def data_roots(self):
        causes = self.causes()
        out, sure = self.particular(causes)
        if self.spec["transport"] == "inline":
            out, sure = self.inline_roots(), True
        if causes["run_queue"] >= HALF * (1 - NEAR):
            out.add("cpu_oversubscribed")  # whatever else: cores would help
        if "lock_bound" in out and self.spec["work"] != "lock_sleep" and \
                self.free_cores() <= FREE * (1 + NEAR):
            out |= self.cpu_roots(causes)  # without the lock there is no core for it
        if self.refills() >= HALF * (1 - NEAR):
            out.add("loader_restart")
        return out if sure else out | self.resource_roots(causes)

    def stops_each_step(self):
        """What the job does beside comes with each step, behind a sync of its own."""
        return self.spec["feature"] in grammar.BESIDE and self.spec.get("every") == 1

    def sync_hides(self, share):
        """Without its sync, half of this share of the host's time, or more, would pass
        while the device works: taking away the sync gains as much."""
        return (self.spec["sync"] in ("each", "item") or self.spec["feature"] == "item" or
                self.stops_each_step()) and \
            min(share, self.busy_share()) >= max(LOSS, HALF * share) * (1 - NEAR)

    def roots(self):
        """The root verdicts that are right."""
        losses = self.losses()
        top = max(losses.values())
        if top < LOSS * (1 - NEAR):
            return {"balanced"}
        out = {"balanced"} if top < LOSS * (1 + NEAR) else set()
        for name, share in losses.items():
            if share < max(top * (1 - NEAR), LOSS * (1 - NEAR)):
                continue
            if name == "starved":
                out |= self.data_roots()
            elif name == "host":
                out.add("host_bound")
                if self.spec["transport"] in THREADS and self.spec["work"] == "gil":
                    out.add("lock_bound")  # it may have lacked the interpreter
                kinds = ("host", "pause") if self.stops_each_step() else ("host",)
                if self.sync_hides(self.spans(*kinds).total() / self.wall):
                    out.add("sync_bound")
            elif name in ("launch", "sync"):
                out |= {"launch_bound", "host_bound" if name == "launch" else "sync_bound"}
                if self.free_cores() <= FREE * (1 - NEAR):
                    out.add("cpu_oversubscribed")  # who launches may have had no core
                if self.spec["transport"] in THREADS:
                    out.add("lock_bound")  # ... or not the interpreter, which they have
            else:
                out.add({"transfer": "transfer_bound", "checkpoint": "checkpoint_stall",
                         "collective": "rank_straggler", "no_demand": "no_demand"}[name])
        return out

    def quiet(self):
        """Nothing to warn of."""
        return self.wait_share() < QUIET and self.busy_share() >= BUSY
