# SPDX-License-Identifier: BSD-2-Clause
"""A loop's report against its truth, step rates, and the table."""

import statistics

import gpu_truth

EPS = 0.002             # the clocks agree to a millisecond in two seconds
CUPTI_OPEN = 0.03       # of a trace of three seconds may lie before the agent's begin
CUPTI_OFF = 0.10        # of the device's time for a step: not the same seconds
COUNT_SHARE = 0.005


def window(report):
    return report["capture"]["begin_ns"], report["capture"]["end_ns"]


def pair(v):
    return (0.0, 1.0) if not v or None in v else (v[0], v[1])


def inside(x, b):
    return b[0] - EPS <= x <= b[1] + EPS


def first_gpu(report):
    """The report's one busy device; {} when it has none."""
    return max(report["gpu"], key=lambda g: g.get("kernels") or 0, default={})


def compare(report, truth):
    """{column: value}; "wrong" lists what the report says falsely."""
    begin, end = window(report)
    g = first_gpu(report)
    busy = g.get("busy", {})
    true = truth.busy(begin, end)
    hard, likely = pair(busy.get("hard")), pair(busy.get("likely"))
    row = {"true": true, "hard": hard, "likely": likely, "share": busy.get("share"),
           "certainty": busy.get("certainty"), "wrong": [],
           "verdict": report["verdicts"][0]["id"] if report["verdicts"] else None,
           "lost": report["capture"]["lost"]["total"]}
    if row["lost"]:
        row["wrong"].append("%d records were lost" % row["lost"])
    if not inside(true, hard):
        row["wrong"].append("busy outside hard")
    if not inside(true, likely):
        row["wrong"].append("busy outside likely")
    copies = g.get("copies") or {}
    told = {"kernels": g.get("kernels")}
    times = {"kernels": truth.kernels}
    for kind in ("h2d", "d2h"):
        told[kind] = copies.get(kind)
        times[kind] = [t for t, k, _ in truth.copies if k == kind]
    for what, at in times.items():
        n, edge = gpu_truth.count(at, begin, end)
        row[what], row[what + "_true"] = told[what], n
        if told[what] is None or abs(told[what] - n) > edge:
            row["wrong"].append("%s: %s, truth %d" % (what, told[what], n))
    # the largest copies at the edges may be in or out
    size = sum(b for t, _, b in truth.copies if begin <= t < end)
    edge = sum(b for t, _, b in truth.copies
               if min(abs(t - begin), abs(t - end)) <= gpu_truth.DRIFT_NS)
    row["bytes"], row["bytes_true"] = copies.get("bytes"), size
    if row["bytes"] is None or abs(row["bytes"] - size) > edge:
        row["wrong"].append("bytes copied: %s, truth %d" % (row["bytes"], size))
    return row


def compare_cupti(row, report, steps):
    """A run with --cupti: other seconds of the same loop, of so many steps, which the
    profiler slowed down in those of the truth: what one step does is the same."""
    busy = first_gpu(report).get("busy", {})
    row["cupti_share"], row["cupti_certainty"] = busy.get("share"), busy.get("certainty")
    hard = pair(busy.get("hard"))
    # the agent comes in while the trace runs
    if busy.get("certainty") != "measured" and hard[1] - hard[0] > CUPTI_OPEN:
        why = [x["reason"] for x in report["capture"]["limits"]
               if x["what"] in ("gpu_times", "gpu.activity")] or \
              ["gpu_times " + str(report["capture"].get("hooks", {}).get("gpu_times"))]
        row["wrong"].append("--cupti: not measured; " + why[0][:200])
    elif steps and "busy_us_per_step" in row:
        begin, end = window(report)
        us = (busy.get("share") or 0) * (end - begin) / 1e3 / steps
        if abs(us / row["busy_us_per_step"] - 1) > CUPTI_OFF + 2 / steps:
            row["wrong"].append("--cupti: busy for %.1f us a step, truth %.1f"
                                % (us, row["busy_us_per_step"]))
    true_per_step = row.get("kernels_per_step")
    told = first_gpu(report).get("kernels")
    # one step at each end of the window is cut
    if true_per_step and told is not None and steps and \
            abs(told / steps / true_per_step - 1) > COUNT_SHARE + 2 / steps:
        row["wrong"].append("--cupti: %.1f kernels a step, truth %.1f"
                            % (told / steps, true_per_step))


def ratio(pairs):
    """Of (traced, untraced) step rates: {median, low, high}, or None."""
    v = [a / b for a, b in pairs if a and b]
    return {"median": statistics.median(v), "low": min(v), "high": max(v)} if v else None


def points(b):
    return "%.1f..%.1f" % (100 * b[0], 100 * b[1])


def share(x):
    return "-" if x is None else "%.1f" % (100 * x)


def factor(r):
    return "-" if not r else "%.3f" % r["median"]


COLUMNS = (
    ("loop", lambda r: r["loop"]),
    ("busy %", lambda r: share(r.get("true"))),
    ("hard %", lambda r: points(r["hard"]) if "hard" in r else "-"),
    ("likely %", lambda r: points(r["likely"]) if "likely" in r else "-"),
    ("cupti %", lambda r: share(r.get("cupti_share"))),
    ("kernels", lambda r: "%s/%s" % (r.get("kernels", "-"), r.get("kernels_true", "-"))),
    ("MB copied", lambda r: "%.1f/%.1f" % (r["bytes"] / 1e6, r["bytes_true"] / 1e6)
     if r.get("bytes") is not None else "-"),
    ("steps/s", lambda r: "%.1f" % r["rate"] if r.get("rate") else "-"),
    ("traced", lambda r: factor(r.get("traced"))),
    ("+cupti", lambda r: factor(r.get("traced_cupti"))),
    ("verdict", lambda r: r.get("verdict") or "-"),
    ("", lambda r: "skipped: " + r["skipped"] if r.get("skipped") else
     "; ".join(r.get("wrong", [])) or "ok"),
)


def table(rows):
    """Lines; told/true where two figures stand, traced: step rate over untraced."""
    cells = [[name for name, _ in COLUMNS]]
    cells += [[str(f(r)) for _, f in COLUMNS] for r in rows]
    width = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    return ["  ".join(c.ljust(w) for c, w in zip(line, width)).rstrip() for line in cells]
