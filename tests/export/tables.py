# SPDX-License-Identifier: BSD-2-Clause
"""The tables of a recording: SQLite, CSV and folded stacks, against the report, the
records and each other."""
import collections
import csv
import os
import shutil
import sqlite3
import subprocess

ROUNDED = 6e-7  # the report's seconds and shares have six decimals ...
ROUNDED_MS = 6e-4  # ... its milliseconds three
FORMULA = tuple("=+-@\t\r\n") + tuple("\uff1d\uff0b\uff0d\uff20")


def near(a, b, by):
    return (a is None and b is None) or \
        (a is not None and b is not None and abs(a - b) <= by)


def check_queries(name, db, report, ok):
    """The questions of docs/export.md, answered as the report does."""
    def one(sql):
        return db.execute(sql).fetchone()

    def every(sql):
        return db.execute(sql).fetchall()
    period = report["steps"]["period_ms"]
    got = one("SELECT whole_steps, mean_ms, min_ms, max_ms FROM step_times")
    ok(name + ": query 1, step times", period and got[0] == period["count"] and
       all(near(g, period[k], ROUNDED_MS) for g, k in zip(got[1:], ("mean", "min", "max"))),
       (got, period))
    if not report["ranks"]:
        got = one("SELECT seconds, share FROM data_wait")
        want = report["breakdown"]["data_wait"]
        ok(name + ": query 2, data wait", near(got[0], want["seconds"], ROUNDED) and
           near(got[1], want["share"], ROUNDED), (got, want))
    want = collections.Counter()
    for c in report["data_wait"]["causes"]:
        want[c["cause"]] += c["seconds"]
    got = dict(every("SELECT cause, seconds FROM wait_causes"))
    ok(name + ": query 3, causes", want and set(got) == set(want) and
       all(near(got[c], want[c], 100 * ROUNDED) for c in want), (got, want))
    got = {r[0]: r[1:] for r in every(
        "SELECT pid, batches, cpu_s, worker_idle_s, state, read_bytes FROM workers "
        "WHERE role = 'loader'")}
    want = {w["pid"]: w for w in report["workers"] or [] if w["role"] == "loader"}
    ok(name + ": query 4, workers", set(got) == set(want) and all(
        got[p][0] == w["batches"] and near(got[p][1], w["cpu"], ROUNDED) and
        near(got[p][2], w["worker_idle"], ROUNDED) and got[p][3] == w["state"] and
        got[p][4] == w["read_bytes"] for p, w in want.items()), (got, want))
    got = {r[:2]: r[2:] for r in every(
        "SELECT dev, inode, pattern, sequential_share, run_bytes, stride_bytes, readers, "
        "fetched_bytes, fs, fs_class, device FROM files")}
    want = {(f["dev"], f["inode"]): (f["pattern"] or {}, f) for f in report["files"]}
    ok(name + ": files, and the order of their reads", set(got) == {
        (d, int(i)) for d, i in want} and all(
            g[0] == p.get("kind") and near(g[1] or 0, p.get("sequential") or 0, ROUNDED) and
            near(g[2] or 0, p.get("run_bytes") or 0, 1) and g[3] == p.get("stride") and
            g[4] == p.get("readers") and g[5] == f["fetched_bytes"] and
            list(g[6:]) == [f["fs"], f["fs_class"], f["device"]]
            for (d, i), (p, f) in want.items() for g in (got[d, int(i)],)), len(got))
    if not report["ranks"]:
        got = {r[0]: r[1:] for r in every("SELECT name, calls, seconds FROM calls")}
        want = {o["name"]: o for o in report["operations"] if o["kind"] == "api"}
        ok(name + ": query 5, GPU calls", want and set(got) == set(want) and all(
            got[n][0] == o["calls"] and near(got[n][1] or 0, o["total_s"] or 0, ROUNDED)
            for n, o in want.items()), (got, want))


def check_db(name, path, report, ok):
    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    try:
        ok(name + ": a sound database",
           db.execute("PRAGMA integrity_check").fetchone()[0] == "ok" and
           db.execute("PRAGMA user_version").fetchone()[0] == 1)
        for view in [r[0] for r in db.execute("SELECT name FROM sqlite_master "
                                              "WHERE type = 'view'")]:
            db.execute("SELECT * FROM " + view).fetchall()
        if report:
            check_queries(name, db, report, ok)
        return {t: ([c[1] for c in db.execute("PRAGMA table_info(%s)" % t)],
                    [c[2] for c in db.execute("PRAGMA table_info(%s)" % t)],
                    db.execute("SELECT * FROM %s ORDER BY rowid" % t).fetchall())
                for t in [r[0] for r in db.execute("SELECT name FROM sqlite_master "
                                                   "WHERE type = 'table'")]}
    finally:
        db.close()


def same(cell, value, kind):
    """A cell of a CSV file against the database's."""
    if value is None:
        return cell == ""
    if kind == "TEXT":
        if cell.startswith(FORMULA):
            return False
        return (cell[1:] if cell.startswith("'") else cell) == value
    if kind == "REAL":
        return abs(float(cell) - value) <= 1e-13 * abs(value)
    return int(cell) == int(value)


def check_csv(name, folder, tables, ok):
    ok(name + ": a CSV file for each table",
       sorted(os.listdir(folder)) == sorted(t + ".csv" for t in tables), os.listdir(folder))
    for table, (cols, kinds, rows) in tables.items():
        with open(os.path.join(folder, table + ".csv"), encoding="utf-8", newline="") as f:
            got = list(csv.reader(f, strict=True))
        wrong = [(g, r) for g, r in zip(got[1:], rows)
                 if len(g) != len(r) or not all(map(same, g, r, kinds))]
        ok("%s: %s.csv has the database's rows" % (name, table),
           got[0] == cols and len(got) - 1 == len(rows) and not wrong, wrong[:1])


def check_cli(name, folder, tables, ok, skip, tmp):
    """The sqlite3 program imports them."""
    if not shutil.which("sqlite3"):
        skip(name + ": import into sqlite3", "sqlite3 is not installed")
        return
    script = "".join(".import --csv '%s' %s\n" % (os.path.join(folder, t + ".csv"), t)
                     for t in sorted(tables))
    script += "".join("SELECT count(*) FROM %s;\n" % t for t in sorted(tables))
    done = subprocess.run(["sqlite3", os.path.join(tmp, "imported")], input=script.encode(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                          check=False)
    # a file of a head line alone makes an empty table
    got = [int(n) for n in done.stdout.split()]
    os.unlink(os.path.join(tmp, "imported"))
    ok(name + ": sqlite3 imports the CSV files", done.returncode == 0 and not done.stderr and
       got == [len(tables[t][2]) for t in sorted(tables)], (done.stderr[:300], got))


def check_folded(name, path, tables, ok):
    """Each thread's time off the CPU, by its intervals."""
    cols, _, rows = tables["off_cpu"]
    at = {c: i for i, c in enumerate(cols)}
    want, lines = collections.Counter(), collections.Counter()
    for r in rows:
        want[r[at["tid"]]] += (r[at["end_ns"]] - r[at["begin_ns"]]) / 1000
    got = collections.Counter()
    with open(path, encoding="utf-8") as f:
        for line in f.read().split("\n")[:-1]:
            stack, count = line.rsplit(" ", 1)
            frames = stack.split(";")
            if not 3 <= len(frames) <= 4:
                return ok(name + ": folded", False, line)
            tid = int(frames[1].rsplit(" ", 1)[1])
            got[tid] += int(count)
            lines[tid] += 1
    # each line is cut to whole microseconds, and none is left out that has one
    wrong = [(t, want[t], got[t]) for t in want if not 0 <= want[t] - got[t] <= lines[t] + 40]
    return ok(name + ": folded stacks hold the time off the CPU", want and not wrong, wrong[:3])
