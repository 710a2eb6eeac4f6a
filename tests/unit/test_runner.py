#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The test runner itself: what fails must not count as passed."""
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import time
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, TESTS)
import totals  # noqa: E402
loader = importlib.machinery.SourceFileLoader("runner", os.path.join(TESTS, "run"))
runner = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
loader.exec_module(runner)


def judge(status, text, tap=False, timeout=5):
    res, trouble = runner.judge(runner.Suite("x", [], timeout, tap=tap), status, text)
    return (res.passed, res.failed, res.skipped), trouble, res.reasons


def shell(script, timeout=10):
    return runner.execute(runner.Suite("x", ["sh", "-c", script], timeout))


class Judge(unittest.TestCase):
    def test_summary_line(self):
        self.assertEqual(judge(0, "noise\n3 passed, 0 failed, 1 skipped\n")[0], (3, 0, 1))

    def test_summary_must_be_last(self):
        self.assertEqual(judge(0, "3 passed, 0 failed, 0 skipped\nboom\n")[0], (0, 1, 0))

    def test_no_summary(self):
        self.assertEqual(judge(0, "")[0], (0, 1, 0))

    def test_summary_but_bad_status(self):
        self.assertEqual(judge(1, "3 passed, 0 failed, 0 skipped\n")[0], (3, 1, 0))
        self.assertEqual(judge(-11, "3 passed, 0 failed, 0 skipped\n")[0], (3, 1, 0))

    def test_nothing_ran(self):
        self.assertEqual(judge(0, "0 passed, 0 failed, 0 skipped\n")[0], (0, 1, 0))

    def test_timeout(self):
        counts, trouble, _ = judge(None, "3 passed, 0 failed, 0 skipped\n")
        self.assertEqual(counts[1], 1)
        self.assertIn("5 s", trouble)

    def test_whole_skip_has_its_reason(self):
        counts, _, reasons = judge(77, "needs a moon\n")
        self.assertEqual((counts, reasons), ((0, 0, 1), ["needs a moon"]))

    def test_skip_reasons_of_scripts(self):
        _, _, reasons = judge(0, "skip: thing: no capsh\n1 passed, 0 failed, 1 skipped\n")
        self.assertEqual(reasons, ["thing: no capsh"])


class Tap(unittest.TestCase):
    def test_cmocka(self):
        text = "1..3\nok 1 - a\nneeds root\nnot ok 2 # SKIP b\nnot ok 3 - c\n# t.c:8: Failure!\n# not ok - g\n"
        counts, _, reasons = judge(1, text, tap=True)
        self.assertEqual((counts, reasons), ((1, 1, 1), ["b: needs root"]))

    def test_all_good(self):
        self.assertEqual(judge(0, "1..2\nok 1 - a\nok 2 - b\n# ok - g\n", tap=True)[:2], ((2, 0, 0), None))

    def test_two_groups(self):
        self.assertEqual(judge(0, "1..1\nok 1 - a\n1..1\nok 1 - b\n", tap=True)[0], (2, 0, 0))

    def test_died_half_way(self):
        counts, trouble, _ = judge(-6, "1..3\nok 1 - a\n", tap=True)
        self.assertEqual(counts, (1, 1, 0))
        self.assertIn("planned 3", trouble)

    def test_leak_after_the_last_test(self):
        self.assertEqual(judge(99, "1..1\nok 1 - a\n", tap=True)[0], (1, 1, 0))


class Execute(unittest.TestCase):
    def test_status_and_output(self):
        status, text = shell("echo hello; echo there >&2; exit 3")
        self.assertEqual((status, text), (3, "hello\nthere\n"))

    def test_timeout_lets_it_clean_up(self):
        begin = time.monotonic()
        status, text = shell("trap 'echo cleaned; exit 0' TERM; sleep 30 & wait", timeout=0.5)
        self.assertIsNone(status)
        self.assertIn("cleaned", text)
        self.assertLess(time.monotonic() - begin, 9)

    def test_leaves_nobody_behind(self):
        status, text = shell("sleep 300 & echo $!")
        self.assertEqual(status, 0)
        pid = int(text)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            try:
                with open("/proc/%d/stat" % pid) as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                        break
            except FileNotFoundError:
                break
            time.sleep(0.02)
        else:
            self.fail("process %d still runs" % pid)

    def test_program_that_is_not_there(self):
        status, _ = runner.execute(runner.Suite("x", ["/no/such/program"], 5))
        self.assertEqual(status, 126)


class Choice(unittest.TestCase):
    """Suites and cases by name; what is listed and not there fails."""

    def names(self, *asked):
        return [s.name for s in runner.choose(runner.suites(), asked)]

    def test_beginnings(self):
        self.assertEqual(self.names("unit/diff"), ["unit/diff", "unit/diff_boot", "unit/diff_read"])
        self.assertEqual(self.names("unit/diff_boot", "unit/diff_b"), ["unit/diff_boot"])
        self.assertEqual(self.names(""), [s.name for s in runner.suites()])

    def test_unknown(self):
        for name in ("capture_smoke", "unit/no_such", "golden:x", "unit/dif:test_same", "unit/api_headers:x"):
            self.assertRaises(ValueError, self.names, name)

    def test_one_case(self):
        self.assertEqual(self.names("unit/diff:test_x"), ["unit/diff:test_x"])
        one = runner.choose(runner.suites(), ["unit/runner:test_twice"])[0]
        self.assertEqual(runner.judge(one, *runner.execute(one))[0].passed, 1)

    def test_all_are_there(self):
        for s in runner.suites():
            missing = [a for a in s.argv if a.startswith(runner.TOP + "/tests") and not os.path.exists(a)]
            self.assertEqual(missing, [], s.name)

    def test_one_that_is_gone(self):
        gone = runner.Suite("x", [runner.PYTHON, os.path.join(runner.TOP, "tests/e2e/gone.py")], 5)
        run = runner.Run(gone)
        self.assertEqual((run.res.failed, run.text), (1, "tests/e2e/gone.py is not there\n"))


class Again(unittest.TestCase):
    """A live suite that fails runs once more; what failed at first is said."""

    def tries(self, script, live=True):
        with tempfile.TemporaryDirectory() as tmp:
            suite = runner.Suite("x", ["sh", "-c", script.replace("@", tmp)], 5)
            suite.live = lambda: live
            first = runner.Run(suite)
            runs = [first]
            said = runner.second_tries(runs, time.monotonic())
            return runs[0].res.failed, said, runs[0] is first

    ONCE = ("test -e @/f && echo '1 passed, 0 failed, 0 skipped' && exit; touch @/f; "
            "echo 'not ok b: late'; echo '0 passed, 1 failed, 0 skipped'; exit 1")

    def test_noise(self):
        failed, said, _ = self.tries(self.ONCE)
        self.assertEqual((failed, len(said)), (0, 1))
        self.assertIn("not ok b: late", said[0])

    def test_twice(self):
        self.assertEqual(self.tries("echo '0 passed, 1 failed, 0 skipped'; exit 1")[:2], (1, []))

    def test_not_live(self):
        self.assertEqual(self.tries(self.ONCE, live=False), (1, [], True))

    def test_no_time_left(self):
        runs = [runner.Run(runner.Suite("x", ["false"], 5))]
        runs[0].suite.live = lambda: True
        self.assertEqual(runner.second_tries(runs, time.monotonic() - runner.ALL_S), [])
        self.assertEqual(runs[0].res.failed, 1)


if __name__ == "__main__":
    totals.main()
