# SPDX-License-Identifier: BSD-2-Clause
"""How noisy the machine is, for tests of live processes.

Only the kernel's figures count: its pressure (Linux PSI), the share of the time in which some task
had to wait for a core, and how many cores are in use. What pipetrace says never decides whether it
is judged.
"""
import glob
import os
import time

# Above it times are not judged. A quiet machine with a job that sleeps has 1 to 5 %.
LIMIT = 0.25
PROBE_S = 1.0


def pressure_s():
    """For how long tasks have waited for a core (Linux PSI, "some"), seconds; None
    where the kernel does not say."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as f:
            return int(f.readline().rpartition("=")[2]) / 1e6
    except (OSError, ValueError):
        return None


class Watch:
    """Pressure from here on. For jobs that leave cores free: of one that does not,
    most pressure is its own."""

    def __init__(self):
        self.begin, self.waited = time.monotonic(), pressure_s()

    def share(self):
        """None unknown."""
        now = pressure_s()
        if now is None or self.waited is None:
            return None
        return (now - self.waited) / max(time.monotonic() - self.begin, 1e-3)


def probe():
    """The pressure of a second in which the caller has nothing run, or the share of the cores
    that is in use, if that is more: all of it is somebody else's, and who has a core of two for
    itself makes no pressure by that. None unknown."""
    w, others = Watch(), Others([])
    time.sleep(PROBE_S)
    share = w.share()
    return None if share is None else max(share, others.cores() / os.cpu_count())


def too_noisy(*shares):
    """A sentence for a skip where one of them is above the limit, else None."""
    known = [s for s in shares if s is not None]
    if not known or max(known) <= LIMIT:
        return None
    return "others had the cores, or tasks waited for one, in %.0f %% of the time" % (100 * max(known))


def tree(pid):
    """A process, its children, and theirs."""
    pids = [pid]
    for p in pids:
        for path in glob.glob("/proc/%d/task/*/children" % p):
            try:
                with open(path, encoding="ascii") as f:
                    pids += [q for q in map(int, f.read().split()) if q not in pids]
            except OSError:
                continue
    return pids


def ticks(pids):
    """CPU ticks used so far by processes, and by the children that they waited for."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total


def all_ticks():
    """CPU ticks that this machine has spent not idle."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return user + nice + system + irq + softirq + steal


class Others:
    """The cores that all but some processes use from here on: part of a job's truth."""

    def __init__(self, pids):
        self.pids, self.begin = sorted(set(pids)), time.monotonic()
        self.before = all_ticks() - ticks(self.pids)

    def cores(self):
        used = all_ticks() - ticks(self.pids) - self.before
        return max(used, 0) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - self.begin)
