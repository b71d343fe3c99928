"""Scripts that write a part of a page leave the rest of it as it is."""

import os
import tempfile
import unittest

import running  # noqa: F401 (puts scripts/ on the path)
import marked_part

PAGE = "# Page\n<!-- other -->\nkept\n<!-- /other -->\n<!-- table -->\nold\nlines\n<!-- /table -->\nend\n"


class MarkedPart(unittest.TestCase):
    def replaced(self, text, name):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            try:
                marked_part.replace(path, name, ["| a |", "|---|"])
            finally:
                with open(path, encoding="utf-8") as file:
                    self.left = file.read()
        return self.left

    def test_only_what_is_between_the_marks_changes(self):
        self.assertEqual(self.replaced(PAGE, "table"), PAGE.replace("old\nlines", "| a |\n|---|"))

    def test_a_page_without_both_marks_is_left_alone(self):
        for page in (PAGE.replace("<!-- table -->", ""), PAGE.replace("<!-- /table -->", "")):
            with self.assertRaisesRegex(SystemExit, "<!-- table --> ... <!-- /table -->"):
                self.replaced(page, "table")
            self.assertEqual(self.left, page)


if __name__ == "__main__":
    unittest.main()
