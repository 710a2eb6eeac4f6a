# SPDX-License-Identifier: BSD-2-Clause
"""The manual pages and the shells' completions against the program's own --help: neither
has an option that the other lacks."""
import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests"))
import totals  # noqa: E402
MAN = os.path.join(TOP, "docs/man")
COMPLETIONS = os.path.join(TOP, "tools/packaging/completions")
PIPETRACE = os.path.join(TOP, "build/pipetrace")
OPTION = re.compile(r"^ {2,6}(?:(-[A-Za-z]), )?(--[a-z-]+)(?:=(\S+))?(?: .*)?$", re.M)
ENV = dict(os.environ, PATH="%s/build:%s" % (TOP, os.environ["PATH"]), LC_ALL="C.UTF-8")


@functools.lru_cache(maxsize=None)
def help_of(*command):
    return subprocess.run([PIPETRACE, *command, "--help"], stdout=subprocess.PIPE, check=True,
                          timeout=20, text=True).stdout


def options(*command):
    """{name: (letter, argument)}"""
    return {name: (letter, arg) for letter, name, arg in OPTION.findall(help_of(*command))}


def commands():
    listed = re.search(r"^ Commands.*?\n\n", help_of(), re.M | re.S).group(0)
    return sorted(re.findall(r"^  ([a-z]+) ", listed, re.M))


def page(name):
    with open(os.path.join(MAN, name), encoding="utf-8") as f:
        return f.read()


def tags(text):
    """What the tagged paragraphs of a page are about, fonts and quotes taken out."""
    for line in re.findall(r"^\.TP\n\.[BIR]+ (.*)$", text, re.M):
        yield re.sub(r"\\f[BIRP]", "", line).replace("\\-", "-").replace('"', "")


def shell(name, *args):
    return subprocess.run([name, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=60, text=True, env=ENV, check=False).stdout


@unittest.skipUnless(os.access(PIPETRACE, os.X_OK), "build/pipetrace is not built")
class Pages(unittest.TestCase):
    def test_each_command_has_one(self):
        there = {os.path.basename(p) for p in glob.glob(MAN + "/*")}
        self.assertEqual(there, {"pipetrace.8"} | {"pipetrace-%s.8" % c for c in commands()})
        self.assertEqual(page("pipetrace-trace.8"), ".so man8/pipetrace.8\n")

    def test_options_are_those_of_help(self):
        for name in ["trace"] + [c for c in commands() if c != "trace"]:
            text = page("pipetrace.8" if name == "trace" else "pipetrace-%s.8" % name)
            said = set()
            for tag in tags(text):
                said |= set(re.findall(r"(?<![\w-])--?[A-Za-z][a-z-]*", tag))
            known = options() if name == "trace" else options(name)
            known = set(known) | {letter for letter, _ in known.values() if letter}
            self.assertGreaterEqual(len(known), 5, name)
            self.assertEqual(said, known, name)

    def test_thresholds_are_the_programs(self):
        with open(TOP + "/user/analysis/verdicts/thresholds.h", encoding="utf-8") as f:
            source = f.read()
        values = dict(re.findall(r"^#define (PT_\w+) ([\d.]+)$", source, re.M))
        known = [(n, float(values[v])) for n, v in re.findall(r"\bX\((\w+), (PT_\w+),", source)]
        self.assertGreater(len(known), 20)
        text = re.search(r"^\.SH THRESHOLDS\n(.*?)^\.SH ", page("pipetrace.8"), re.M | re.S)
        said = [t.split() for t in tags(text.group(1))]
        self.assertEqual([(name, float(value.strip("()"))) for name, value in said], known)

    def test_sections(self):
        for name in ["pipetrace.8"] + ["pipetrace-%s.8" % c for c in commands() if c != "trace"]:
            heads = re.findall(r"^\.SH (.*)$", page(name), re.M)
            for head in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "OVERHEAD",
                         "PRIVILEGES", "SEE ALSO"):
                self.assertIn(head, heads, name)

    def test_pages_that_are_named_are_there(self):
        for path in glob.glob(MAN + "/*.8"):
            for name in re.findall(r"^\.BR (pipetrace\S*) \(8\)", page(path), re.M):
                self.assertTrue(os.path.exists(os.path.join(MAN, name.replace("\\", "") + ".8")),
                                name)

    def test_mandoc(self):
        if not shutil.which("mandoc"):
            self.skipTest("there is no mandoc")
        pages = [p for p in sorted(glob.glob(MAN + "/*.8")) if "trace-trace" not in p]
        self.assertEqual(shell("mandoc", "-Tlint", "-Wwarning", *pages), "")


@unittest.skipUnless(os.access(PIPETRACE, os.X_OK), "build/pipetrace is not built")
class Completions(unittest.TestCase):
    def test_values_that_they_know(self):
        """A list of values in a script is one that the program takes."""
        option = {"MODE": "--mode", "SEVERITY": "--fail-on", "DOOR": "--reads"}
        for name, pattern in (("pipetrace.bash", r"^\t([A-Z]+)\) compgen -W '([a-z ]+)'"),
                              ("_pipetrace", r'"([A-Z]+)"\) act = "\(([a-z ]+)\)"'),
                              ("pipetrace.fish", r"case ([A-Z]+)\n.*-a '([a-z ]+)'")):
            with open(os.path.join(COMPLETIONS, name), encoding="utf-8") as f:
                found = dict(re.findall(pattern, f.read(), re.M))
            self.assertEqual(set(found), set(option), name)
            for arg, values in found.items():
                for value in values.split():
                    done = subprocess.run([PIPETRACE, option[arg], value, "--help"],
                                          stdout=subprocess.DEVNULL, timeout=20, check=False)
                    self.assertEqual(done.returncode, 0, (arg, value))

    def bash(self, *lines):
        """What bash would complete the last word of each line with."""
        script = 'source "$0"\nfor l; do read -ra COMP_WORDS <<< "$l"\n' \
            '[[ $l != *" " ]] || COMP_WORDS+=("")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n' \
            '_pipetrace pipetrace\necho "${COMPREPLY[*]}"\ndone'
        out = shell("bash", "-c", script, COMPLETIONS + "/pipetrace.bash", *lines)
        return [set(line.split()) for line in out.splitlines()]

    def test_bash(self):
        names = commands()
        got = self.bash(*["pipetrace %s --" % c for c in names])
        for name, offered in zip(names, got):
            want = {o + ("=" if arg else "") for o, (_, arg) in options(name).items()}
            self.assertEqual(offered, want, name)
        formats = {o[2:] for o, (_, arg) in options("export").items() if arg in ("FILE", "DIR")}
        self.assertGreater(len(formats), 5)
        for line, want in (("pipetrace ", set(names)), ("pipetrace rec", {"record"}),
                           ("pipetrace record --mode ", {"light", "standard", "full"}),
                           ("pipetrace --mode = li", {"light"}),
                           ("pipetrace report --fail-on = ", {"info", "warning", "critical"}),
                           ("pipetrace export x --format ", formats),
                           ("pipetrace report %s/CONTRI" % TOP, {TOP + "/CONTRIBUTING.md"}),
                           ("pipetrace --json %s/CONTRI" % TOP, {TOP + "/CONTRIBUTING.md"})):
            self.assertEqual(self.bash(line), [want], line)

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("there is no zsh")
        script = COMPLETIONS + "/_pipetrace"
        self.assertEqual(shell("zsh", "-n", script), "")
        names = commands()
        out = shell("zsh", "-fc", "source $1; _pipetrace_commands pipetrace; "
                    "for c in ${@[2,-1]}; do echo @; _pipetrace_specs pipetrace $c; done",
                    "zsh", script, *names)
        listed, *specs = out.split("@\n")
        self.assertEqual(sorted(line.split(":")[0] for line in listed.splitlines()), names)
        for name, text in zip(names, specs):
            offered = set(re.findall(r"^(?:\(.*?\)|\*)?(--?[A-Za-z-]+)=?\[", text, re.M))
            want = {w for o, (letter, _) in options(name).items() for w in (o, letter) if w}
            self.assertEqual(offered, want, name)
        self.assertRegex(specs[names.index("export")],
                         r"--format=.*:FORMAT:\(.*\bhtml\b.*\bsqlite\b.*\)\n")

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("there is no fish")
        names = commands()
        out = shell("fish", "--no-config", "-c", "source $argv[1]; complete -C 'pipetrace '; "
                    "for c in $argv[2..]; echo @; complete -C \"pipetrace $c --\"; end; echo @; "
                    "complete -C 'pipetrace export --format '",
                    COMPLETIONS + "/pipetrace.fish", *names)
        first, *rest = out.split("@\n")
        self.assertEqual(sorted(line.split("\t")[0] for line in first.splitlines()), names)
        for name, text in zip(names, rest):
            self.assertEqual({line.split("\t")[0] for line in text.splitlines()},
                             set(options(name)), name)
        self.assertIn("perfetto\t", rest[-1])


if __name__ == "__main__":
    totals.main()
