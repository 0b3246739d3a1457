"""The rules of a search, alone: random histories, and the example of the document."""

from __future__ import annotations

import math
import random
import re
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot.oot.culprits.search import (
    End,
    Purpose,
    Seen,
    Terms,
    goods_needed,
    most_runs_left,
    next_steps,
)

pytestmark = pytest.mark.logic

PAGE = (Path(__file__).parents[3] / "docs/culprits.md").read_text(encoding="utf-8")
FLAKES, UNBUILDABLE, NIGHTS = 0.03, 0.05, 14
HISTORIES, MANY = 40, 200


@dataclass
class Played:
    """How a search of a random history went."""

    end: End
    planted: int
    suspects: range
    runs: int
    rounds: int  # of splits; those that confirm come on top
    all_rounds: int
    commits: int

    @property
    def wrong(self) -> bool:
        return self.end is End.FOUND and self.planted not in self.suspects


def play(rng: random.Random, commits: int, parallel: int) -> Played:
    """Search a history with one culprit; runs before it fail by chance, and some commits cannot be built.

    How often the job fails by chance is known from as many nights as it ran before.
    """
    planted = rng.randrange(1, commits)
    unbuildable = {at for at in range(1, commits - 1) if rng.random() < UNBUILDABLE}
    rate = sum(rng.random() < FLAKES for _ in range(NIGHTS)) / NIGHTS
    terms = Terms(parallel=parallel, goods=goods_needed(rate))
    seen = [Seen(sha=str(at)) for at in range(commits)]
    seen[0], seen[-1] = replace(seen[0], good=1), replace(seen[-1], bad=1)
    runs = rounds = splits = 0
    while not (decision := next_steps(seen, terms)).end:
        assert 0 < len(decision.steps) <= parallel
        rounds += 1
        runs += len(decision.steps)
        splits += decision.steps[0].purpose is Purpose.SPLIT
        for step in decision.steps:
            at = int(step.sha)
            seen[at] = run(seen[at], splits, fails=at >= planted or rng.random() < FLAKES,
                           builds=at not in unbuildable)  # fmt: skip
        assert runs < 200
    found = range(decision.good + 1, decision.bad + 1) if decision.end is End.FOUND else range(0)
    return Played(decision.end, planted, found, runs, splits, rounds, commits)


def run(one: Seen, in_round: int, *, fails: bool, builds: bool) -> Seen:
    if not builds:
        return replace(one, unbuildable=True, vain=one.vain + 1)
    if fails:
        return replace(one, bad=one.bad + 1, round=one.round if one.bad else in_round)
    return replace(one, good=one.good + 1)


def histories(count: int, parallel: int, commits: int | None = None) -> list[Played]:
    rng = random.Random(f"{count} {parallel} {commits}")
    return [play(rng, commits or int(2 ** rng.uniform(3, 10)), parallel) for _ in range(count)]


def check_runs(played: list[Played]) -> None:
    assert [one for one in played if one.wrong] == []
    assert statistics.median(one.runs - math.log2(one.commits) for one in played) <= 3


def check_rounds(played: list[Played]) -> None:
    assert [one for one in played if one.wrong] == []
    assert statistics.median(one.rounds for one in played) <= 6
    # with what confirms the ends and the pair
    assert statistics.median(one.all_rounds for one in played) <= 9


def test_random_histories_take_few_runs_and_no_wrong_commit_is_named():
    check_runs(histories(HISTORIES, 1))


def test_three_at_once_find_one_of_a_thousand_commits_in_six_rounds():
    check_rounds(histories(HISTORIES, 3, 1_000))


@pytest.mark.nightly
def test_many_random_histories():
    assert [one for one in histories(MANY, 1) if one.wrong] == []
    check_rounds(histories(MANY, 3, 1_000))
    played = histories(1_000, 1)
    assert statistics.median(one.runs - math.log2(one.commits) for one in played) <= 3
    wrong = sum(one.wrong for one in [*played, *histories(500, 2), *histories(500, 3)])
    assert wrong / 2_000 <= 0.004  # docs/culprits.md: about one in five hundred


def test_the_next_steps_of_four_thousand_commits_take_five_milliseconds():
    seen = [Seen(sha=str(at)) for at in range(4_000)]
    seen[0], seen[-1] = replace(seen[0], good=1), replace(seen[-1], bad=2)
    took = []
    for _ in range(20):
        began = time.perf_counter()
        assert next_steps(seen, Terms(parallel=2)).steps
        took.append(time.perf_counter() - began)
    assert min(took) <= 0.005


def example(number: int) -> list[tuple[list[int], list[str]]]:
    """The rounds of an example on the page: commits, and what came of them."""
    tables = re.findall(r"(?:^\| \d.*\n)+", PAGE[PAGE.index("## An example") :], re.MULTILINE)
    rounds = []
    for line in tables[number].splitlines():
        _, commits, results = (cell.strip() for cell in line.strip("|").split("|"))
        rounds.append(([int(name.strip()[1:]) for name in commits.split(",")], re.split(", ", results)))
    return rounds


@pytest.mark.parametrize(("number", "suspects", "runs"), [(0, range(8, 10), 7), (1, range(9, 10), 7)])
def test_the_example_of_the_page(number, suspects, runs):
    seen = [Seen(sha=str(at)) for at in range(16)]
    seen[0], seen[15] = replace(seen[0], good=1), replace(seen[15], bad=1)
    terms, splits, counted = Terms(parallel=2), 0, 0
    for commits, results in example(number):
        decision = next_steps(seen, terms)
        assert [int(step.sha) for step in decision.steps] == commits
        splits += decision.steps[0].purpose is Purpose.SPLIT
        assert len(commits) <= most_runs_left(seen, terms)[0]
        counted += len(commits)
        for at, result in zip(commits, results, strict=True):
            seen[at] = run(seen[at], splits, fails=result == "bad", builds=result != "does not build")
    decision = next_steps(seen, terms)
    assert (decision.end, range(decision.good + 1, decision.bad + 1)) == (End.FOUND, suspects)
    assert counted == runs


def ends(count: int = 4, **last) -> list[Seen]:
    seen = [Seen(sha=str(at)) for at in range(count)]
    return [replace(seen[0], good=1), *seen[1:-1], replace(seen[-1], **{"bad": 1, **last})]


def test_a_bad_end_that_passes_is_flaky():
    assert next_steps(ends(good=1), Terms()).end is End.FLAKY


def test_a_good_end_that_fails_has_the_search_begin_before_it():
    seen = ends(bad=2)
    seen[0] = Seen(sha="0", bad=1)
    assert next_steps(seen, Terms()).end is End.GOOD_IS_BAD


def test_a_commit_that_cannot_be_confirmed_ends_the_search():
    seen = [*ends()[:-1], Seen(sha="3", vain=2)]
    assert next_steps(seen, Terms()).end is End.UNCONFIRMED
    assert next_steps([*seen[:-1], Seen(sha="3", vain=2, silent=2)], Terms()).end is End.SILENT
    assert next_steps(ends(vain=2), Terms()).end is End.UNCONFIRMED
    assert next_steps(ends(vain=2, asked=True), Terms()).end is None


def test_three_commits_without_an_answer_end_the_search():
    silent = {"vain": 2, "silent": 2}
    seen = ends(8, bad=2)
    seen[2:5] = [Seen(sha=str(at), **silent) for at in (2, 3, 4)]
    assert next_steps(seen, Terms()).end is End.SILENT


def test_both_ends_are_confirmed_together_where_the_job_is_flaky():
    decision = next_steps(ends(), Terms(parallel=2, goods=2))
    assert [(step.sha, step.purpose) for step in decision.steps] == [
        ("3", Purpose.CONFIRM_BAD),
        ("0", Purpose.CONFIRM_GOOD),
    ]


def test_nothing_is_sent_while_a_round_is_under_way():
    seen = ends(8, bad=2)
    seen[4] = replace(seen[4], asked=True)
    assert next_steps(seen, Terms(parallel=2)).steps == ()


def test_what_runs_for_another_reason_is_waited_for_only_where_nothing_else_is_left():
    seen = ends(5, bad=2)
    seen[2] = replace(seen[2], pending=True)
    assert [step.sha for step in next_steps(seen, Terms(parallel=1)).steps] == ["3"]
    only = ends(3, bad=2)
    only[1] = replace(only[1], pending=True)
    assert next_steps(only, Terms()) == replace(next_steps(only, Terms()), steps=(), end=None)


def test_a_result_of_another_run_saves_steps():
    seen = ends(9, bad=2)
    seen[4] = replace(seen[4], good=1)
    assert [step.sha for step in next_steps(seen, Terms()).steps] == ["6"]


def test_contradictory_runs_are_repeated_up_to_five_times_and_then_left_alone():
    seen = ends(3, bad=2)
    seen[1] = replace(seen[1], good=1, bad=2)
    assert next_steps(seen, Terms()).steps[0].sha == "1"
    seen[1] = replace(seen[1], good=1, bad=4)
    decision = next_steps(seen, Terms())
    assert (decision.end, decision.good, decision.bad) == (End.FOUND, 0, 2)


def test_a_failure_that_later_rounds_closed_in_on_has_to_fail_a_third_time():
    seen = ends(4, bad=2)
    seen[1] = replace(seen[1], good=1)
    seen[2] = replace(seen[2], bad=2, round=1)
    assert next_steps(seen, Terms()).end is End.FOUND
    newer = [*seen, replace(seen[-1], sha="4", round=3)]
    assert next_steps(newer, Terms()).steps == (("2", Purpose.CONFIRM_BAD),)
