# SPDX-License-Identifier: BSD-2-Clause
"""tests/bench: intervals and ratios by hand, and that docs/performance.md says what was kept."""
import json
import os
import re
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests/bench"))
import library  # noqa: E402
import measure  # noqa: E402
import page  # noqa: E402
import parts  # noqa: E402


class Figures(unittest.TestCase):
    def test_interval_is_students(self):
        mean, low, high = measure.interval([1.0, 2.0, 3.0])
        self.assertAlmostEqual(mean, 2.0)
        self.assertAlmostEqual(high - mean, 4.30 / 3 ** 0.5, places=2)
        self.assertAlmostEqual(mean - low, high - mean)
        self.assertEqual(measure.interval([5.0]), (5.0, None, None))

    def test_twice_and_half_are_equally_far(self):
        value, low, high = measure.ratio([0.5, 2.0, 1.0])
        self.assertAlmostEqual(value, 1.0)
        self.assertAlmostEqual(low * high, 1.0)

    def test_a_bar_is_met_by_all_of_the_interval(self):
        for bar, got, said in (("<= 1.25", (1.1, 1.0, 1.2), "yes"),
                               ("<= 1.25", (1.2, 1.1, 1.3), "open"),
                               ("<= 1.25", (1.5, 1.4, 1.6), "no"),
                               (">= 700,000", (8e5, None, None), "yes"),
                               (">= 0.99", (0.9, 0.8, 0.95), "no")):
            self.assertEqual(measure.met(bar, got), said, (bar, got))

    def test_traced_stands_between_untraced(self):
        class Work:
            answers = iter([100.0, 200.0, 100.0])

            def ns(self, _):
                return next(self.answers)
        with open(os.devnull, encoding="utf-8") as nobody:
            got = parts.bracketed(Work(), ["read"], nobody)
        self.assertEqual(got, {"read": (100.0, 200.0, 100.0)})
        self.assertEqual(parts.figure("", "read", [got["read"]], [got["read"]])["value"], 0.5)
        self.assertEqual(parts.figure("", "call x", [got["read"]], [got["read"]])["value"], 100.0)

    def test_steps_count_whole_and_in_part(self):
        ends = [i * 100000000 for i in range(21)]
        self.assertAlmostEqual(parts.steps_a_second(ends, (250000000, 1250000000)), 10.0)
        with self.assertRaises(measure.NotRun):
            parts.steps_a_second(ends, (0, 3000000000))

    def test_no_path_of_the_machine_is_told(self):
        said = measure.last_line("a\nfailed: %s/x y /tmp/abc/d Linux %s\n\n" % (
            TOP, os.uname().release))
        self.assertNotIn(TOP, said)
        self.assertNotIn("/tmp", said)
        self.assertNotIn(os.uname().release, said)

    def test_the_library_has_what_begins_apart(self):
        self.assertLessEqual(set(library.BEGINS), set(library.names()))
        self.assertGreater(len(library.names()), 60)


class Page(unittest.TestCase):
    KEPT = {"commit": "abc", "machine": {"cores": 2, "virtual": True, "processor": "x86_64",
                                         "memory_gib": 8, "kernel": "6.18", "system": "Debian 12"},
            "parts": {"start": {"command": "make bench ONLY=start", "seconds": 1, "rows": [
                measure.row("CPU", "ms", (166.2, 150.1, 180.0), (1.0, 0.9, 1.1), 10, "<= 120"),
                measure.not_run("bcc: a|b", "not installed", "bcc -x")]}}}

    def test_a_table_is_filled_and_the_rest_stays(self):
        text = "a\n<!-- bench: start -->\nold\n<!-- end -->\nb\n<!-- bench: job -->\nkept\n" \
               "<!-- end -->\n"
        made = page.fill(text, self.KEPT)
        self.assertIn("| CPU | 166 (150 to 180) ms | 1 to 1 | 10 | ≤ 120: **missed** |", made)
        self.assertIn("not run: not installed", made)
        self.assertIn("a\\|b", made)
        self.assertNotIn("old", made)
        self.assertIn("kept", made)
        self.assertEqual(page.fill(made, self.KEPT), made)

    def test_the_page_is_what_was_kept(self):
        with open(page.PAGE, encoding="utf-8") as f:
            text = f.read()
        with open(page.KEPT, encoding="utf-8") as f:
            kept = json.load(f)
        self.assertEqual(page.fill(text, kept), text)
        self.assertEqual({m.group(2) for m in page.MARK.finditer(text)} - {"machine"},
                         {f.__name__ for f in parts.USUAL})
        self.assertIsNone(re.search(r"/(home|root|tmp|work)/", text))


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    for test, why in result.skipped:
        print("ok 1 - %s # SKIP %s" % (test, why))
    print("%d passed, %d failed, %d skipped" % (result.testsRun - bad - len(result.skipped), bad,
                                                len(result.skipped)))
    sys.exit(1 if bad else 0)
