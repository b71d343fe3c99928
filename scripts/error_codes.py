#!/usr/bin/env python3
"""Error codes: src/base/error_codes.def has each with its one meaning, the code uses them, src/base/README.md shows them.

    scripts/error_codes.py            # a test: code, table and page agree
    scripts/error_codes.py --update   # writes the page's table

A code that is used must be in the table, with the folder that uses it; a code of the table must be used. That a code means two things in one
folder no script can see.
"""

import collections
import itertools
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = "src/base/error_codes.def"
ROW = re.compile(r'DC_ERROR\((DC\d{4}), "([^"]+)", "([^"]+)"\)')
CODE = re.compile(r"\bDC\d{4}\b")
COMPARED = re.compile(r"code\(\) [!=]= ")  # with an error that another folder reported
PROGRAMS = ("src", "runtime", "cli")  # where errors are reported
EXAMPLES = {("src/base/status.h", "DC2103"), ("cli/dcrun_main.cpp", "DC6302")}  # codes in comments about codes
PAGE = os.path.join(ROOT, "src", "base", "README.md")
BEGIN, END = "<!-- error codes -->", "<!-- /error codes -->"


def rows():
    """[(code, folder, meaning)] of the table, and what is wrong with it."""
    with open(os.path.join(ROOT, TABLE), encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if not line.startswith("//") and line.strip()]
    found, wrong = [], []
    for line in lines:
        match = ROW.fullmatch(line)
        if match:
            found.append(match.groups())
        else:
            wrong.append(f"{TABLE}: not a row: {line}")
    for (before, *_), (after, *_) in itertools.pairwise(found):
        if before >= after:
            wrong.append(f"{TABLE}: {after} comes after {before}")
    for meaning, count in collections.Counter(meaning for _, _, meaning in found).items():
        if count > 1:
            wrong.append(f"{TABLE}: {count} codes mean '{meaning}'")
    return found, wrong


def folder_of(path):
    parts = path.split("/")
    return parts[0] if parts[0] == "cli" else "/".join(parts[:2])


def uses():
    """Two results: {code: {folder: one place}} of all codes in sources, and the set of codes that are reported: in quotes or in an error line."""
    named, reported = collections.defaultdict(dict), set()
    for top in PROGRAMS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                if not name.endswith((".cpp", ".h", ".def")) or path == TABLE:
                    continue
                with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                    for number, line in enumerate(file, 1):
                        if COMPARED.search(line):
                            continue
                        for code in CODE.findall(line):
                            if (path, code) in EXAMPLES:
                                continue
                            named[code].setdefault(folder_of(path), f"{path}:{number}")
                        reported.update(re.findall(r'"(DC\d{4})"|error\[(DC\d{4})\]', line))
    return named, {code for pair in reported for code in pair if code}


def disagreements(table):
    folders = {code: folder for code, folder, _ in table}
    named, reported = uses()
    wrong = []
    for code, places in sorted(named.items()):
        for folder, place in places.items():
            if code not in folders:
                wrong.append(f"{place}: {code} is not in {TABLE}")
            elif folder != folders[code]:
                wrong.append(f"{place}: {code} belongs to {folders[code]}; take a code of {folder}")
    return wrong + [f"{TABLE}: nothing reports {code}; delete its last use's row too" for code in sorted(set(folders) - reported)]


def in_full(table):
    return ["| code | reported by | meaning |", "|---|---|---|", *(f"| {code} | `{folder}` | {meaning} |" for code, folder, meaning in table)]


def page(table):
    """The text of PAGE now, and as it should be."""
    with open(PAGE, encoding="utf-8") as file:
        now = file.read()
    begin, end = now.index(BEGIN) + len(BEGIN), now.index(END)
    return now, now[:begin] + "\n" + "\n".join(in_full(table)) + "\n" + now[end:]


def main():
    table, wrong = rows()
    wrong += disagreements(table)
    now, wanted = page(table)
    if now != wanted and "--update" in sys.argv[1:]:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(wanted)
    elif now != wanted:
        wrong.append(f"{PAGE}: its table of error codes is not current; run scripts/error_codes.py --update")
    print("\n".join(wrong) if wrong else f"{len(table)} error codes, each with one meaning")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
