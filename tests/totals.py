# SPDX-License-Identifier: BSD-2-Clause
"""unittest with the line of totals that tests/run reads at its end."""
import sys
import unittest


def main():
    """Runs the cases of the program that called, or those that its arguments name."""
    result = unittest.main(module="__main__", exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    for test, why in result.skipped:
        print("ok 1 - %s # SKIP %s" % (test, why))
    print("%d passed, %d failed, %d skipped" % (result.testsRun - bad - len(result.skipped), bad,
                                                len(result.skipped)))
    sys.exit(1 if bad else 0)
