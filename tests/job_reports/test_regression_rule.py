"""How often the rule for regressions is wrong: on drawn series with noise as CI has it. docs/ci-extras.md has the figures."""

from __future__ import annotations

import random
import re
from math import pi, sin
from statistics import fmean

import pytest

from bot.job_reports import trends
from bot.job_reports.benchmark_judgement import LEAST_CHANGE
from tests.job_reports.conftest import DOC

pytestmark = [pytest.mark.nightly, pytest.mark.logic]
RUNS, SERIES = 60, 400
SLOWER = 0.10
FIRST, LAST = 40, 55  # where a step may be: five runs follow
NEAR = 2  # runs
POINTS_OFF = 1  # percentage points that a figure in the docs may differ by


def outlier(draw):
    """One run in twenty on a machine that something else keeps busy."""
    return draw.gauss(0, 0.01) + (draw.uniform(0.2, 0.6) if draw.random() < 0.05 else 0)


NOISE = {  # what a run differs by, from the generator and its place
    "little (0.5 %)": lambda draw, at: draw.gauss(0, 0.005),
    "some (2 %)": lambda draw, at: draw.gauss(0, 0.02),
    "much (5 %)": lambda draw, at: draw.gauss(0, 0.05),
    "outliers: 1 run in 20 by 20 to 60 %": lambda draw, at: outlier(draw),
    "two kinds of machines, 8 % apart": lambda draw, at: draw.choice((0, 0.08)) + draw.gauss(0, 0.005),
    "one machine in five slower by 8 %": lambda draw, at: (draw.random() < 0.2) * 0.08 + draw.gauss(0, 0.005),
    "waves of 2 % over 30 runs": lambda draw, at: 0.02 * sin(2 * pi * at / 30) + draw.gauss(0, 0.005),
    "drift of 0.1 % a run": lambda draw, at: 0.001 * at + draw.gauss(0, 0.005),
}


def series(noise, draw, step=None):
    slower = (SLOWER if step is not None and at >= step else 0 for at in range(RUNS))
    return [100 * (1 + more) * (1 + noise(draw, at)) for at, more in enumerate(slower)]


def branch(noise, draw):
    """Shares of series: falsely told of, found, named within two runs."""
    false = [trends.find_level_change(series(noise, draw), least=LEAST_CHANGE) for _ in range(SERIES)]
    places = [draw.randrange(FIRST, LAST + 1) for _ in range(SERIES)]
    found = [
        (trends.find_level_change(series(noise, draw, place), least=LEAST_CHANGE), place) for place in places
    ]
    slower = [(one, place) for one, place in found if one and one.change.by > 0]
    named = sum(abs(one.first - place) <= NEAR for one, place in slower)
    return [sum(map(bool, false)) / SERIES, len(slower) / SERIES, named / SERIES]


def pulls(noise, draw):
    """Shares of runs of pull requests: falsely told of, found."""

    def told(more):
        *before, usual = series(noise, draw)
        change = trends.compare_value(usual * (1 + more), before[-trends.SEEN_BEFORE :], least=LEAST_CHANGE)
        return change.counts and (not more or change.by > 0)

    return [sum(told(more) for _ in range(SERIES)) / SERIES for more in (0, SLOWER)]


def percent(share):
    return round(share * 100)


def figures():
    """The table of the docs, measured again: the same numbers are drawn each time."""
    draw = random.Random(7)
    return {name: [*branch(noise, draw), *pulls(noise, draw)] for name, noise in NOISE.items()}


def totals(rows):
    """Precision and recall of branches, and of pull requests."""

    def of(false, found):
        wrong, right = (fmean(row[at] for row in rows.values()) for at in (false, found))
        return [right / (right + wrong), right]

    return [*of(0, 1), *of(3, 4)]


def test_the_docs_say_how_often_the_rule_is_wrong():
    text = (
        DOC.read_text(encoding="utf-8")
        .partition("**How often that is wrong**")[2]
        .partition("\nWhether less")[0]
    )
    said = {
        name: [int(one) for one in re.findall(r"(\d+) %", rest)]
        for name, rest in re.findall(r"(?m)^\| ([^|]+?) \|((?: \d+ % \|){5})$", text)
    }
    rows = figures()
    found = {name: [percent(one) for one in row] for name, row in rows.items()}
    assert said.keys() == found.keys()
    for name, row in found.items():
        assert said[name] == pytest.approx(row, abs=POINTS_OFF), name
    together = re.findall(r"(\d+) %", text.partition("Precision and recall")[2])
    assert [int(one) for one in together] == pytest.approx(
        [percent(one) for one in totals(rows)], abs=POINTS_OFF
    )
