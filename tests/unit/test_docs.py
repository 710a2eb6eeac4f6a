# SPDX-License-Identifier: BSD-2-Clause
"""The documents: links lead somewhere, the index has each of them, sentences that they quote
are the program's, and commands say who has run them."""
import functools
import glob
import os
import re
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCE = re.compile(r"^(```|~~~).*?^\1\s*?$", re.M | re.S)
LINK = re.compile(r"!?\[(?:[^][]|\[[^]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)")


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def documents():
    found = glob.glob(TOP + "/*.md") + glob.glob(TOP + "/docs/**/*.md", recursive=True)
    found += glob.glob(TOP + "/tools/**/*.md", recursive=True)
    return sorted(os.path.relpath(p, TOP) for p in found if "node_modules" not in p)


@functools.lru_cache(maxsize=None)
def anchors(path):
    """Of its headings, as GitHub and GitLab make them; and those that are written out."""
    text, out = FENCE.sub("", read(path)), set()
    for head in re.findall(r"^#{1,6} +(.*?)\s*#*$", text, re.M):
        head = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).replace("`", "").lower()
        name = base = re.sub(r"[^\w\- ]", "", head).replace(" ", "-")
        n = 0
        while name in out:
            n += 1
            name = "%s-%d" % (base, n)
        out.add(name)
    return out | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


class Links(unittest.TestCase):
    def test_each_leads_somewhere(self):
        n = 0
        for path in documents():
            text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", read(path)))
            for to in LINK.findall(text):
                if re.match(r"[a-z]+:", to):
                    continue
                name, _, anchor = to.partition("#")
                target = os.path.normpath(os.path.join(os.path.dirname(path), name)) \
                    if name else path
                n += 1
                self.assertTrue(os.path.exists(os.path.join(TOP, target)), "%s: %s" % (path, to))
                if anchor and target.endswith(".md"):
                    self.assertIn(anchor, anchors(target), "%s: %s" % (path, to))
        self.assertGreater(n, 100)

    def test_the_index_has_each(self):
        listed = {os.path.normpath(os.path.join("docs", to.partition("#")[0]))
                  for to in LINK.findall(read("docs/README.md"))}
        there = {p for p in documents() if p.startswith("docs/")} - {"docs/README.md"}
        there |= {os.path.relpath(p, TOP) for p in glob.glob(TOP + "/docs/*.schema.json")}
        self.assertEqual({p for p in there if not p.startswith("docs/verdicts/")} - listed, set())
        self.assertIn("docs/README.md", {os.path.normpath(to) for to in
                                         LINK.findall(read("README.md"))})


@functools.lru_cache(maxsize=None)
def sentences():
    """The string literals of the program, each whole, one a line."""
    out = []
    for path in glob.glob(TOP + "/user/**/*.c", recursive=True):
        source = re.sub(r'(?<!\\)"\s+"', "", read(path))
        out += re.findall(r'"((?:\\.|[^"\\\n])*)"', source)
    return "\n".join(out)


class Quotes(unittest.TestCase):
    def test_sentences_are_the_programs(self):
        quoted = re.findall(r"^> (.*)$", read("docs/troubleshooting.md"), re.M)
        self.assertGreater(len(quoted), 30)
        for q in quoted:
            self.assertIn(q, sentences())

    def test_commands_say_who_ran_them(self):
        blocks = re.findall(r"(?:^<!-- (.*?) -->\n)?^```\n(.*?)^```$", read("docs/run-with.md"),
                            re.M | re.S)
        self.assertGreater(len(blocks), 10)
        for who, commands in blocks:
            self.assertRegex(who, r"^(run by|not run here:) ", commands)
            if who.startswith("run by "):
                self.assertTrue(os.access(os.path.join(TOP, who[len("run by "):]), os.X_OK), who)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    for test, why in result.skipped:
        print("ok 1 - %s # SKIP %s" % (test, why))
    print("%d passed, %d failed, %d skipped" % (result.testsRun - bad - len(result.skipped), bad,
                                                len(result.skipped)))
    sys.exit(1 if bad else 0)
