"""Why published cells miss: the what-ifs that bring them within 10 %, and for a ratio those of the throughputs that it is made of.

Not a program.
"""

import dataclasses

from published_runs import TOLERANCE

UNEXPLAINED, BOTH_GOOD = "unexplained", "ratio of two within 10 %"
BETWEEN = "published: within 10 % of the line through the column's figures on both sides"


@dataclasses.dataclass(frozen=True)
class Reason:
    label: str  # class and name
    text: str  # with the figure that it brings


class Reasons:
    """`base`: {runs: {(shape, what): Cell}}."""

    def __init__(self, base):
        self.base = base
        self.cured = {}  # {(runs, key): [(Case, Cell)]}

    def add(self, case, runs, cells):
        """Takes the what-if as a reason in the columns in which more cells are within 10 % with it than without; the other columns it does not explain.
        Nor does it explain anything of a column whose throughputs it makes worse, or ratios with it."""
        if not case.explains:
            return
        base, groups = self.base[runs], {}
        group_of = lambda cell: (cell.kind, cell.column, bool(cell.parts))
        for key, cell in cells.items():
            groups.setdefault(group_of(cell), []).append(key)
        gain = {group: sum(cells[key].good - base[key].good for key in keys) for group, keys in groups.items()}
        for key, cell in cells.items():
            spoils = gain.get(("throughput", cell.column, False), 0) < 0
            spoils = spoils or any(part in cells and gain[group_of(cells[part])] < 0 for part in cell.parts)
            if cell.good and not base[key].good and gain[group_of(cell)] > 0 and not spoils:
                self.cured.setdefault((runs, key), []).append((case, cell))

    def of(self, runs, key):
        """Reason of a cell that misses. A what-if comes before what no plan has, and either before the parts of a ratio."""
        cell = self.base[runs][key]
        if cures := self._cures(runs, key):
            return Reason(_label(cures[0][0]), ", ".join(_figure(case, other) for case, other in cures))
        if is_between(cell):
            return Reason(BETWEEN, f"{cell.published / cell.between - 1:+.0%} from that line, ours {cell.off_between:+.0%}")
        return self._of_ratio(runs, cell) if cell.parts else Reason(UNEXPLAINED, UNEXPLAINED)

    def _cures(self, runs, key):
        return sorted(self.cured.get((runs, key), []), key=lambda cure: cure[0].explains != "what-if")

    def _of_ratio(self, runs, cell):
        parts = [self._closest(runs, key) for key in cell.parts]
        text = ", ".join(f"{key[1]} {_figure(case, part)}" for key, (case, part) in zip(cell.parts, parts))
        if not all(part.good for _, part in parts):
            return Reason(UNEXPLAINED, UNEXPLAINED)
        cases = [case for case, _ in parts if case]
        labels = [f"a throughput: {_label(case)}" for case in cases]
        return Reason(" and ".join(dict.fromkeys(labels)) or BOTH_GOOD, text)

    def _closest(self, runs, key):
        """(case, cell): as it is where that is within 10 %, else with the what-if that comes first."""
        cell = self.base[runs][key]
        cures = [] if cell.good else self._cures(runs, key)
        return cures[0] if cures else (None, cell)


def is_between(cell):
    """Whether the figures on both sides of the published one say what ours says, and not what it says itself."""
    return cell.between > 0 and abs(cell.off_between) <= TOLERANCE and abs(cell.published / cell.between - 1) > TOLERANCE / 2


def _label(case):
    return f"{case.explains}: {case.name}"


def _figure(case, cell):
    return f"{case.name + ' ' if case else ''}{cell.off:+.0%}"
