"""Codes of errors on reading a model: one code, one meaning.

build/venv/bin/python tests/e2e/error_codes_test.py
"""

import collections
import pathlib
import re
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src"


def places(folder=SOURCE):
    """{code: files of src that give it}. Comments count for nothing."""
    found = collections.defaultdict(set)
    for path in folder.rglob("*"):
        if path.suffix in (".cpp", ".h"):
            text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
            for code in re.findall(r'"(DC\d{4})"', text):
                found[code].add(path.relative_to(SOURCE).as_posix())
    return found


class Codes(unittest.TestCase):
    def test_a_code_of_the_compiler_belongs_to_one_folder(self):
        found = places()
        self.assertGreater(len(found), 50)
        self.assertEqual({code: sorted(files) for code, files in found.items() if len({f.split("/")[0] for f in files}) > 1}, {})

    def test_a_code_of_the_frontend_stands_in_one_file(self):
        found = places(SOURCE / "frontend")
        self.assertGreater(len(found), 15)
        self.assertEqual({code: sorted(files) for code, files in found.items() if len(files) > 1}, {})


if __name__ == "__main__":
    unittest.main()
