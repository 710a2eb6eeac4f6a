# SPDX-License-Identifier: BSD-2-Clause
"""docs/verdicts against the program: a page for each verdict and no other, each number in
"How it is decided" as thresholds.h has it, each excerpt as `pipetrace report` prints it.

    tests/unit/test_verdict_pages.py --write    make the excerpts anew

An excerpt stands between two comments: `<!-- report NAME [OPTION...]: PART, PART -->`, NAME
being a kept recording (tests/NAME.raw.xz), each PART the id of a verdict or the label of a
block of the text, and `<!-- end -->`. `<!-- report none -->`: no kept recording shows the verdict.
"""
import concurrent.futures
import functools
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests"))
from kept import PROGRAM, unpack_named, unpacked  # noqa: E402

PAGES = os.path.join(TOP, "docs/verdicts")
JUDGES = os.path.join(TOP, "user/analysis/verdicts")
SECTIONS = ["What it means", "How it is decided", "A real report", "What to do",
            "When it is wrong"]
EXCERPT = re.compile(r"<!-- report ([\w/. -]+): ([\w ,]+) -->\n(.*?)<!-- end -->\n", re.S)
NUMBER = re.compile(r"\*\*([\d.,]+)(?:[ -]?(%|KiB|MiB|[a-z ]+))?\*\*\s*(?:\(`(\w+)`\)|<!-- (\w+) -->)")
UNITS = {"%": 0.01, "KiB": 1024, "MiB": 1 << 20}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def ids():
    return re.findall(r"^PT_VERDICT\((\w+),", read(TOP + "/user/report/verdicts.def"), re.M)


@functools.lru_cache(maxsize=None)
def thresholds():
    """{name: value} of the macros, and of what --threshold changes."""
    source = read(JUDGES + "/thresholds.h")
    out = {}
    for name, text in re.findall(r"^#define (PT_\w+) (\(?[\d.e* /]+\)?)$", source, re.M):
        out[name] = eval(text, {"__builtins__": {}})  # of our own header: digits and * /
    for name, macro in re.findall(r"\bX\((\w+), (PT_\w+),", source):
        out[name] = out[macro]
    return out


def section(page, name):
    return re.search(r"^## %s\n(.*?)(?=^## |\Z)" % name, page, re.M | re.S).group(1)


def pages():
    return {i: os.path.join(PAGES, i + ".md") for i in ids()}


@functools.lru_cache(maxsize=None)
def text_of(name):
    with tempfile.TemporaryDirectory(prefix="pipetrace-pages-") as d:
        name, *options = name.split()
        done = subprocess.run([PROGRAM, "report", "--raw-stream", unpack_named(name, d)] + options,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                              check=False, env=dict(os.environ, LC_ALL="C.UTF-8"))
    if done.returncode:
        raise ValueError(done.stderr.decode("utf-8", "replace"))
    return done.stdout.decode()


def blocks(text):
    """{id of a root verdict, or label of a block: its lines}"""
    out, last = {}, None
    head, _, rest = text.partition("\n\n")
    for block in re.split(r"^(?=[A-Z])", head + "\n\n", flags=re.M):
        name = re.search(r"\[(\w+),", block)
        if name:
            out[name[1]] = block
    for line in rest.splitlines(keepends=True):
        label = re.match(r"([A-Z]\w*(?: \w+)?)(?: \d+)? {1,}", line)
        if label:
            last = label[1].strip()
            out[last] = ""
        if last:
            out[last] += line if line.strip() else ""
    return out


def excerpt(name, parts):
    there = blocks(text_of(name))
    lines = "".join(there[p.strip()] for p in parts.split(",")).rstrip("\n")
    return "```\n%s\n```\n" % re.sub(r" +$", "", lines, flags=re.M)


def rendered(page):
    """The page with its excerpts as they are today."""
    return EXCERPT.sub(lambda m: "<!-- report %s: %s -->\n%s<!-- end -->\n" % (
        m[1], m[2], excerpt(m[1], m[2])), page)


def all_rendered():
    """{path: (as it is, as it would be)}, several at a time."""
    paths = sorted(glob.glob(PAGES + "/*.md")) + [TOP + "/docs/first-report.md"]
    paths = [p for p in paths if os.path.exists(p)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return {p: (read(p), new) for p, new in
                zip(paths, pool.map(lambda p: rendered(read(p)), paths))}


class Pages(unittest.TestCase):
    def test_each_figure_has_its_words(self):
        source = "".join(read(f) for f in glob.glob(JUDGES + "/../*/*.c"))
        listed = re.findall(r'^PT_EVIDENCE\("([\w.]+)", "([^"]+)"\)$',
                            read(TOP + "/user/report/evidence.def"), re.M)
        for m in re.findall(r'pt_evidence\w*\([^"();]*"([\w.]+)"', source):
            self.assertIn(m, dict(listed))
        for m, _ in listed:
            self.assertIn('"%s"' % m, source)
        self.assertEqual(len(listed), len(dict(listed)))

    def test_one_for_each_verdict(self):
        there = {os.path.basename(p)[:-3] for p in glob.glob(PAGES + "/*.md")}
        self.assertEqual(there, set(ids()) | {"README"})
        index = read(PAGES + "/README.md")
        self.assertEqual(re.findall(r"\]\((\w+)\.md\)", index), ids())

    def test_sections(self):
        for i, path in pages().items():
            page = read(path)
            self.assertRegex(page, r"\A# %s: .+\n" % i)
            self.assertEqual(re.findall(r"^## (.*)$", page, re.M), SECTIONS, i)

    def test_numbers_are_the_programs(self):
        """Each number is bold and named, and is what the name stands for."""
        for path in list(pages().values()) + [PAGES + "/README.md"]:
            page = read(path)
            text = page if path.endswith("README.md") else section(page, SECTIONS[1])
            for number, unit, user, fixed in NUMBER.findall(text):
                name = user or fixed
                self.assertIn(name, thresholds(), path)
                self.assertTrue(user == "" or not user.startswith("PT_"), (path, name))
                value = float(number.replace(",", "")) * UNITS.get(unit, 1)
                self.assertAlmostEqual(value, thresholds()[name], msg="%s: %s" % (path, name),
                                       delta=0.004 if unit == "%" else 1e-9)
            rest = re.sub(r"`[^`]*`|\]\([^)]*\)|^#.*$", "", NUMBER.sub("", text), flags=re.M)
            self.assertNotRegex(rest, r"\d", path)

    def test_what_the_judge_asks_is_told(self):
        """A threshold that decides a verdict is on its page."""
        known = thresholds()
        for i, path in pages().items():
            source, text = read("%s/%s.c" % (JUDGES, i)), section(read(path), SECTIONS[1])
            asked = set(re.findall(r"\bth->(\w+)", source))
            asked |= {m for m in re.findall(r"\bPT_\w+", source) if m in known}
            said = {known[u or f] for _, _, u, f in NUMBER.findall(text)}
            for name in asked:
                self.assertIn(known[name], said, "%s does not tell of %s" % (path, name))

    def test_excerpts_are_todays(self):
        if not os.access(PROGRAM, os.X_OK):
            self.skipTest("build/pipetrace is not built")
        for path, (old, new) in all_rendered().items():
            self.assertEqual(old, new, "%s: tests/unit/test_verdict_pages.py --write"
                             % os.path.relpath(path, TOP))

    def test_each_has_a_report(self):
        """... of a recording that shows it; none only where there is no such recording."""
        none = set()
        for i, path in pages().items():
            text = section(read(path), SECTIONS[2])
            if "<!-- report none -->" in text:
                none.add(i)
                continue
            self.assertIn(i, [p.strip() for _, parts, _ in EXCERPT.findall(text)
                              for p in parts.split(",")] +
                          re.findall(r"\[(\w+), ", text), path)
        shown = set()
        for path in glob.glob(TOP + "/tests/reports/*.json.xz") if none else []:
            shown |= {v["id"] for v in json.loads(unpacked(path))["verdicts"]}
        self.assertEqual(none & shown, set())


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        for where, (was, now) in all_rendered().items():
            if was != now:
                with open(where, "w", encoding="utf-8") as out:
                    out.write(now)
                print(os.path.relpath(where, TOP))
        sys.exit(0)
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    for test, why in result.skipped:
        print("ok 1 - %s # SKIP %s" % (test, why))
    print("%d passed, %d failed, %d skipped" % (result.testsRun - bad - len(result.skipped), bad,
                                                len(result.skipped)))
    sys.exit(1 if bad else 0)
