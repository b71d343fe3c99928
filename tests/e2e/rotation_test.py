"""Days together cover all cases; a slow run covers them at once."""

import contextlib
import io
import unittest
from unittest import mock

from rotation import of_today, taking_turns


class RotationTest(unittest.TestCase):
    def on(self, day, cases, parts, slow="0"):
        said = io.StringIO()
        with mock.patch.dict("os.environ", DCC_TEST_DAY=str(day), DCC_SLOW_TESTS=slow), contextlib.redirect_stderr(said):
            return of_today(cases, parts), said.getvalue()

    def test_days_cover_everything(self):
        for count in (2, 5, 8):
            for parts in (2, 3):
                days = [self.on(day, range(count), parts)[0] for day in range(7, 7 + parts)]
                self.assertEqual(sorted(case for day in days for case in day), list(range(count)))

    def test_the_day_is_printed(self):
        chosen, said = self.on(7, "abcd", 2)
        self.assertEqual(chosen, ["b", "d"])
        self.assertIn("DCC_TEST_DAY=7: 2 of 4 cases: ['b', 'd']", said)

    def test_tests_take_turns(self):
        found = []
        for day in (7, 8):

            class Case(unittest.TestCase):
                def test_one(self): ...

                def test_two(self): ...

                def path(self): ...

            with mock.patch.dict("os.environ", DCC_TEST_DAY=str(day), DCC_SLOW_TESTS="0"), contextlib.redirect_stderr(io.StringIO()):
                taking_turns(2)(Case)
            self.assertTrue(hasattr(Case, "path"))
            found.append(unittest.defaultTestLoader.getTestCaseNames(Case))
        self.assertEqual(found, [["test_two"], ["test_one"]])

    def test_slow_runs_take_all(self):
        self.assertEqual(self.on(7, "abcd", 2, slow="1"), (list("abcd"), ""))


if __name__ == "__main__":
    unittest.main()
