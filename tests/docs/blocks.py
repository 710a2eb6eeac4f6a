# SPDX-License-Identifier: BSD-2-Clause
"""The blocks of commands in the documents, and who runs each.

A block without a language is commands, unless `<!-- report ... -->` stands above it. Above
commands stands one of

    <!-- run by PROGRAM -->                          a test that runs them as they stand there
    <!-- run by PROGRAM, but for WORD, WORD: who -->   lines with such a word are left out
    <!-- not run here: why -->

Only blocks of the tree's own programs (make, tests/..., tools/...) need none.
"""
import collections
import glob
import os
import re
import shlex

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCED = re.compile(r"(?:^<!-- ([^\n]*?) -->\n)?^```(\S*)\n(.*?)^```$", re.M | re.S)
Block = collections.namedtuple("Block", "path line mark text")


def documents():
    found = glob.glob(TOP + "/*.md") + glob.glob(TOP + "/docs/**/*.md", recursive=True)
    found += glob.glob(TOP + "/tools/**/*.md", recursive=True)
    return sorted(os.path.relpath(p, TOP) for p in found if "node_modules" not in p)


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def blocks(path):
    text = read(path)
    for m in FENCED.finditer(text):
        mark, kind, commands = m.groups()
        if not kind and not (mark or "").startswith("report "):
            yield Block(path, text.count("\n", 0, m.start(3)) + 1, mark or "", commands)


def left_out(mark):
    """The words of `but for`."""
    m = re.search(r", but for ([^:]+): ", mark)
    return [w.strip() for w in m.group(1).split(",")] if m else []


def of(program):
    """[(path, commands)] that this test runs, lines that it leaves out taken away."""
    for path in documents():
        for b in blocks(path):
            if re.match(r"run by %s(,|$)" % re.escape(program), b.mark):
                words = left_out(b.mark)
                yield path, "".join(line for line in b.text.splitlines(True)
                                    if not any(w in line for w in words))


def words(line):
    """[[word, ...], ...]: the simple commands of a line; what only the reader knows is made up,
    what stands two spaces behind is said of them."""
    line = re.sub(r"\$\([^)]*\)|\$!|\bPID\b", "1", re.split(r" {2,}", line.strip())[0])
    line = re.sub(r"--format NAME", "--format html", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    out = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            out.append([])
        else:
            out[-1].append(word)
    for argv in out:
        for at in ("<", ">", ">>"):
            if at in argv:
                del argv[argv.index(at):]
        while argv and (argv[0] in ("sudo", "$", "#") or re.match(r"[A-Z_0-9]+=", argv[0])):
            del argv[0]
    return [argv for argv in out if argv]


def call(argv, name="pipetrace"):
    """The arguments of our program in a command that may begin with others (ssh, docker), or None."""
    for i, word in enumerate(argv):
        if re.fullmatch(r"(.*/)?%s(:[\d.]+)?" % name, word) and argv[:i][-1:] not in (["install"], ["-t"]):
            return argv[i + 1:]
    return None
