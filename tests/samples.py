"""Of very many examples that are alike, which does the default run take? All of them are for --nightly."""

from __future__ import annotations

import pytest


def each(step, values):
    """Return all values as parameters, of which each `step`-th runs by default."""
    return [value if at % step == 0 else nightly(value) for at, value in enumerate(values)]


def in_turn(values, others, step=1):
    """Return all pairs as parameters; by default each `step`-th value runs with one of the others, which take turns."""
    return [
        (value, other)
        if at % step == step - 1 and (at // step - turn) % len(others) == 0
        else nightly(value, other)
        for at, value in enumerate(values)
        for turn, other in enumerate(others)
    ]


def nightly(*values):
    """Return a parameter that runs only with --nightly."""
    return pytest.param(*values, marks=pytest.mark.nightly)
