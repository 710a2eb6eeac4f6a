# SPDX-License-Identifier: BSD-2-Clause
"""The documents: links lead somewhere, the index has each of them, sentences that they quote
are the program's, commands say who has run them, and the program takes each of ours."""
import functools
import glob
import os
import re
import subprocess
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, TOP + "/tests/docs")
import blocks  # noqa: E402
from blocks import documents, read  # noqa: E402

PIPETRACE = TOP + "/build/pipetrace"
SIMJOB = TOP + "/build/sim/simjob"
FENCE = re.compile(r"^(```|~~~).*?^\1\s*?$", re.M | re.S)
LINK = re.compile(r"!?\[(?:[^][]|\[[^]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)")


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


def ours(argv):
    """A program of the tree, which is a test or makes something for one."""
    return argv[0] == "make" or re.match(r"(tests|tools|build)/", argv[0])


def examples():
    """[(where, line)] of the manual pages."""
    for path in sorted(glob.glob(TOP + "/docs/man/*.8")):
        text = read(path)
        for block in re.findall(r"^\.SH EXAMPLES\n\.nf\n(.*?)^\.fi$", text, re.M | re.S):
            for line in block.replace("\\-", "-").splitlines():
                yield os.path.relpath(path, TOP), re.sub(r"^[#$] ", "", line)


def lines():
    """[(where, line)] of all blocks and examples."""
    for path in documents():
        for b in blocks.blocks(path):
            for line in b.text.replace("\\\n", "").splitlines():
                yield "%s:%d" % (path, b.line), line
    yield from examples()


@functools.lru_cache(maxsize=None)
def help_of(program, *command):
    return subprocess.run([program, *command, "--help"], stdout=subprocess.PIPE, check=True,
                          timeout=20, text=True).stdout


class Commands(unittest.TestCase):
    def test_each_block_says_who_runs_it(self):
        n = 0
        for path in documents():
            # an indented block would be one that nobody looks at
            self.assertIsNone(re.search(r"\n\n    (sudo )?(pipetrace|make|tests/|tools/|kubectl)",
                                        blocks.FENCED.sub("", read(path))), path)
            for b in blocks.blocks(path):
                where, n = "%s:%d" % (path, b.line), n + 1
                if b.mark or not all(map(ours, sum(map(blocks.words, b.text.splitlines()), []))):
                    self.assertRegex(b.mark, r"^(run by \S|not run here: .)", where)
                if b.mark.startswith("run by "):
                    who, suite = re.match(r"run by ([^\s,]+)(?: ([^\s,]+))?", b.mark).groups()
                    self.assertTrue(os.access(os.path.join(TOP, who), os.X_OK), where)
                    if suite:
                        self.assertIn('"%s"' % suite, read(who), where)
                    for word in blocks.left_out(b.mark):
                        self.assertIn(word, b.text, where)
        self.assertGreater(n, 30)

    def test_programs_of_the_tree_are_there(self):
        targets = set(re.findall(r"[\w-]+", " ".join(
            re.findall(r"^(?:\.PHONY:)?[ \t]*([\w .-]+?)[ \t]*(?::(?!=)|$)", read("Makefile"), re.M))))
        for where, line in lines():
            for argv in blocks.words(line):
                if argv[0] == "make":
                    for word in argv[1:]:
                        if not re.search(r"[=/]|^-", word):
                            self.assertIn(word, targets, (where, line))
                elif ours(argv):
                    self.assertTrue(os.path.exists(os.path.join(TOP, argv[0])), (where, line))

    @unittest.skipUnless(os.access(PIPETRACE, os.X_OK), "build/pipetrace is not built")
    def test_pipetrace_takes_each(self):
        """--help stands last: what stands before it has been taken by then."""
        n = 0
        for where, line in lines():
            for argv in blocks.words(line):
                args = blocks.call(argv)
                if args is None:
                    continue
                args = args[:args.index("--")] if "--" in args else args
                done = subprocess.run([PIPETRACE, *args, "--help"], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, timeout=20, text=True, check=False)
                self.assertEqual((done.returncode, "Usage:" in done.stdout), (0, True),
                                 (where, line, done.stdout[-300:]))
                n += 1
        self.assertGreater(n, 60)

    @unittest.skipUnless(os.access(PIPETRACE, os.X_OK), "build/pipetrace is not built")
    def test_options_named_in_sentences(self):
        names = set(re.findall(r"^  ([a-z]+) ", help_of(PIPETRACE), re.M))
        for path in documents():
            for span in re.findall(r"`(?:sudo )?(pipetrace [^`\n]*)`", blocks.FENCED.sub("", read(path))):
                word = span.split(" -- ")[0].split()
                known = help_of(PIPETRACE, *(w for w in word[1:2] if w in names))
                for option in re.findall(r" (--?[a-z][a-z-]*)", span.split(" -- ")[0]):
                    self.assertRegex(known, r"(?m)^ +(-\w, )?%s\b" % option, (path, span))

    @unittest.skipUnless(os.access(SIMJOB, os.X_OK), "build/sim/simjob is not built")
    def test_simjob_has_the_options(self):
        for where, line in lines():
            for argv in blocks.words(line):
                for word in blocks.call(argv, "simjob") or []:
                    if word.startswith("--"):
                        self.assertIn(word, re.findall(r"--[a-z-]+", help_of(SIMJOB)),
                                      (where, line))


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    for test, why in result.skipped:
        print("ok 1 - %s # SKIP %s" % (test, why))
    print("%d passed, %d failed, %d skipped" % (result.testsRun - bad - len(result.skipped), bad,
                                                len(result.skipped)))
    sys.exit(1 if bad else 0)
