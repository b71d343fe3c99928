"""A part of the cases each day, all of them over days: for tests whose every case is a long export."""

import datetime
import os
import sys
import unittest


def of_today(cases, parts):
    """Every `parts`-th of the cases, another share each day; all of them under DCC_SLOW_TESTS=1. DCC_TEST_DAY=N is the N-th day, which is printed."""
    cases = list(cases)
    if os.environ.get("DCC_SLOW_TESTS") == "1":
        return cases
    chosen = cases[day() % parts :: parts]
    print(f"DCC_TEST_DAY={day()}: {len(chosen)} of {len(cases)} cases: {chosen}", file=sys.stderr)
    return chosen


def taking_turns(parts):
    """For a subclass of TestCase: every `parts`-th of its own tests runs, another share each day, as of_today says."""

    def choose(case):
        names = [name for name in vars(case) if name.startswith(unittest.defaultTestLoader.testMethodPrefix)]
        for name in set(names) - set(of_today(names, parts)):
            delattr(case, name)
        return case

    return choose


def day():
    return int(os.environ.get("DCC_TEST_DAY") or datetime.date.today().toordinal())
