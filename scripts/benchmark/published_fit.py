"""Least squares for published.py: factors with which plans take as long as they were published to.

Not a program.
"""

import dataclasses

ROUNDS, HALVINGS, CLOSE, STEP = 6, 4, 0.01, 0.01
LEAST = {"compute": 0.05, "link": 0.05, "attention": 0.1, "intercept": 0.0}


def fit(plans, jobs, start, free):
    """(factors, relative errors): Gauss-Newton on the relative errors of `jobs`, [(Job, seconds)], over the factors named in `free`.

    Steps that do not bring the sum of squares down are halved. A factor that would leave its range goes to its end.
    """
    factors, errors = start, _errors(plans, jobs, start)
    for _ in range(ROUNDS):
        slopes = {name: _slopes(plans, jobs, factors, name) for name in free}
        moves = _moves(slopes, errors, factors)
        for _ in range(HALVINGS):
            moved = _moved(factors, moves)
            later = _errors(plans, jobs, moved)
            if _dot(later, later) < _dot(errors, errors):
                break
            moves = {name: move / 2 for name, move in moves.items()}
        else:
            break
        gain = 1 - _dot(later, later) / _dot(errors, errors)
        factors, errors = moved, later
        if gain < CLOSE:
            break
    return factors, errors


def _moves(slopes, errors, factors):
    """{name: move}; a factor at its end that would go further is left out."""
    names = list(slopes)
    while names:
        solved = _solve([[_dot(slopes[a], slopes[b]) for b in names] for a in names], [-_dot(slopes[a], errors) for a in names])
        moves = dict(zip(names, solved))
        names = [name for name in names if getattr(factors, name) > LEAST[name] or moves[name] > 0]
        if len(names) == len(moves):
            return moves
    return {}


def _errors(plans, jobs, factors):
    return [plans.step(job, factors) / wanted - 1 for job, wanted in jobs]


def _moved(factors, moves):
    values = {}
    for name, move in moves.items():
        value = getattr(factors, name)
        furthest = value / 2 if name != "intercept" else abs(move)
        values[name] = max(value + max(min(move, furthest), -furthest), LEAST[name])
    return dataclasses.replace(factors, **values)


def _slopes(plans, jobs, factors, name):
    """Change of the relative error of each job per unit of one factor."""
    if name == "intercept":
        return [job.accumulation / wanted for job, wanted in jobs]
    change = STEP * getattr(factors, name)
    moved = dataclasses.replace(factors, **{name: getattr(factors, name) + change})
    return [(plans.step(job, moved) - plans.step(job, factors)) / change / wanted for job, wanted in jobs]


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def _solve(matrix, right):
    """Gaussian elimination with pivots; a direction that changes nothing gets 0."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right)]
    for i in range(size):
        best = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for r in range(i + 1, size):
            if rows[i][i]:
                share = rows[r][i] / rows[i][i]
                rows[r] = [x - share * y for x, y in zip(rows[r], rows[i])]
    found = [0.0] * size
    for i in reversed(range(size)):
        left = rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))
        found[i] = left / rows[i][i] if abs(rows[i][i]) > 1e-12 else 0.0
    return found
