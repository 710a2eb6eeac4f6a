# SPDX-License-Identifier: BSD-2-Clause
"""Which test executes which line, by gcov: a test that does not execute a line cannot
see what is changed in it."""
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import subprocess
import tempfile

STATEMENT_ENDS = (";", "{", "}", ":", "*/")


def digest(paths):
    """Of the files' contents."""
    sums = hashlib.sha256()
    for path in sorted(paths):
        with open(path, "rb") as f:
            sums.update(path.encode() + b"\0" + hashlib.sha256(f.read()).digest())
    return sums.hexdigest()


def executed(objects, run):
    """{source: [[lines with code], [those executed]]} of run(environment): gcov's word;
    None: it did not pass. Objects are compiled with --coverage, and have names of
    their own."""
    with tempfile.TemporaryDirectory(prefix="pipetrace-covered-") as d:
        for o in objects:
            notes = os.path.basename(o)[:-2] + ".gcno"
            os.symlink(os.path.join(os.path.dirname(os.path.abspath(o)), notes),
                       os.path.join(d, notes))
        if not run(dict(os.environ, GCOV_PREFIX=d, GCOV_PREFIX_STRIP="99")):
            return None
        data = glob.glob(os.path.join(d, "*.gcda"))
        done = subprocess.run(["gcov", "-j", "-t", "-o", d] + data, cwd=d, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = {}
    for part in done.stdout.splitlines():
        for f in json.loads(part)["files"]:
            if f["file"].endswith(".c") and f["lines"]:
                out[f["file"]] = [[x["line_number"] for x in f["lines"]],
                                  [x["line_number"] for x in f["lines"] if x["count"]]]
    return out


class Covered:
    """What all tests execute; tests are names."""

    def __init__(self):
        self.tests = set()
        self.code = collections.defaultdict(set)     # path: lines with code
        self.seen = collections.defaultdict(set)     # (path, line): names

    def add(self, name, lines):
        self.tests.add(name)
        for path, (code, done) in lines.items():
            self.code[path].update(code)
            for line in done:
                self.seen[path, line].add(name)

    def write(self, path, key):
        names = sorted(self.tests)
        number = {n: i for i, n in enumerate(names)}
        rows = [[p, x, sorted(number[n] for n in self.seen.get((p, x), ()))]
                for p, code in sorted(self.code.items()) for x in sorted(code)]
        with open(path + ".tmp", "w", encoding="utf-8") as f:
            json.dump({"key": key, "tests": names, "lines": rows}, f)
        os.replace(path + ".tmp", path)

    def read(self, path, key):
        """False: there is none of that key."""
        try:
            with open(path, encoding="utf-8") as f:
                kept = json.load(f)
        except (OSError, ValueError):
            return False
        if kept["key"] != key:
            return False
        self.tests = set(kept["tests"])
        for p, line, who in kept["lines"]:
            self.code[p].add(line)
            self.seen[p, line] = {kept["tests"][i] for i in who}
        return True

    def of(self, path, text, begin, end):
        """The tests that execute some of a text's statement; None: it cannot be told,
        as of a label that decides where others go."""
        lines = text.splitlines()
        first = text.count("\n", 0, begin)
        last = text.count("\n", 0, max(begin, end - 1))
        while first and lines[first - 1].strip() and \
                not lines[first - 1].rstrip().endswith(STATEMENT_ENDS):
            first -= 1
        if any(re.search(r"\b(case|default)\b", x) for x in lines[first:last + 1]):
            return None
        code = self.code.get(path, set())
        if not code & set(range(first + 1, last + 2)):  # it is a part of others: all of
            while first and lines[first - 1] != "}":    # the function's
                first -= 1
            while last + 1 < len(lines) and lines[last] != "}":
                last += 1
        found = code & set(range(first + 1, last + 2))
        return set().union(*(self.seen[path, x] for x in found)) if found else None


def measure(objects, tests, jobs, run, say):
    """run(test, environment): whether it passed."""
    out = Covered()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for test, lines in pool.map(
                lambda t: (t, executed(objects, lambda env: run(t, env))), tests):
            if lines is None:
                say("left out, it fails without a defect: " + test.name)
            else:
                out.add(test.name, lines)
    return out
