"""The part of a page that a script writes: whatever stands between `<!-- NAME -->` and `<!-- /NAME -->`."""


def replace(path, name, lines):
    """Puts `lines` between the marks of `name` in the file at `path`; ends the program if either mark is missing."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise SystemExit(f"{path} has no {begin} ... {end}; put both marks where the script is to write")
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + begin + "\n" + "\n".join(lines) + "\n" + end + after)
