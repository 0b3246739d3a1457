"""The rules of a search, alone: random histories, and the example of the document."""

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
    SearchTerms,
    SeenCommit,
    bads_needed,
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
    terms = SearchTerms(parallel=parallel, flaky_rate=rate)
    seen = [SeenCommit(sha=str(at)) for at in range(commits)]
    seen[0], seen[-1] = replace(seen[0], good=1), replace(seen[-1], bad=1)
    runs = rounds = splits = 0
    while not (decision := next_steps(seen, terms)).end:
        assert 0 < len(decision.steps) <= parallel
        rounds += 1
        runs += len(decision.steps)
        splits += decision.steps[0].purpose is Purpose.SPLIT
        for step in decision.steps:
            at = int(step.sha)
            fails = at >= planted or rng.random() < FLAKES
            seen[at] = run(seen[at], fails=fails, builds=at not in unbuildable)
        assert runs < 200
    found = range(decision.good + 1, decision.bad + 1) if decision.end is End.FOUND else range(0)
    return Played(decision.end, planted, found, runs, splits, rounds, commits)


def run(one: SeenCommit, *, fails: bool, builds: bool = True) -> SeenCommit:
    if not builds:
        return replace(one, unbuildable=True, vain=one.vain + 1)
    return replace(one, bad=one.bad + 1) if fails else replace(one, good=one.good + 1)


def histories(count: int, parallel: int, commits: int | None = None, *, name: str = "") -> list[Played]:
    rng = random.Random(f"{count} {parallel} {commits} {name}")
    return [play(rng, commits or int(2 ** rng.uniform(3, 10)), parallel) for _ in range(count)]


def more_than_halving(played: list[Played]) -> float:
    """How many runs they took beyond the logarithm of their commits: the median."""
    return statistics.median(one.runs - math.log2(one.commits) for one in played)


def check_rounds(played: list[Played]) -> None:
    assert [one for one in played if one.wrong] == []
    assert statistics.median(one.rounds for one in played) <= 6
    # with what confirms the ends and the pair
    assert statistics.median(one.all_rounds for one in played) <= 9


def test_random_histories_take_few_runs_and_no_wrong_commit_is_named():
    played = histories(HISTORIES, 1)
    assert [one for one in played if one.wrong] == []
    assert more_than_halving(played) <= 3


def test_three_at_once_find_one_of_a_thousand_commits_in_six_rounds():
    check_rounds(histories(HISTORIES, 3, 1_000))


@pytest.mark.nightly
def test_many_random_histories():
    check_rounds(histories(MANY, 3, 1_000))
    sets = [histories(MANY, 1, name=str(number)) for number in range(10)]
    assert sum(more_than_halving(one) <= 3 for one in sets) >= 8
    assert max(more_than_halving(one) for one in sets) <= 3.2
    played = histories(5_000, 1)
    assert more_than_halving(played) <= 3
    wrong = sum(one.wrong for one in [*played, *histories(1_500, 2), *histories(1_500, 3)])
    assert wrong / 8_000 <= 0.001  # docs/culprits.md says how many it is about


@pytest.mark.alone
def test_the_next_steps_of_four_thousand_commits_take_five_milliseconds():
    seen = [SeenCommit(sha=str(at)) for at in range(4_000)]
    seen[0], seen[-1] = replace(seen[0], good=1), replace(seen[-1], bad=2)
    took = []
    for _ in range(20):
        began = time.perf_counter()
        assert next_steps(seen, SearchTerms(parallel=2)).steps
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
    seen = [SeenCommit(sha=str(at)) for at in range(16)]
    seen[0], seen[15] = replace(seen[0], good=1), replace(seen[15], bad=1)
    terms, counted = SearchTerms(parallel=2), 0
    for commits, results in example(number):
        decision = next_steps(seen, terms)
        assert [int(step.sha) for step in decision.steps] == commits
        assert len(commits) <= most_runs_left(seen, terms)[0]
        counted += len(commits)
        for at, result in zip(commits, results, strict=True):
            seen[at] = run(seen[at], fails=result == "bad", builds=result != "does not build")
    decision = next_steps(seen, terms)
    assert (decision.end, range(decision.good + 1, decision.bad + 1)) == (End.FOUND, suspects)
    assert counted == runs


def ends(count: int = 4, **last) -> list[SeenCommit]:
    seen = [SeenCommit(sha=str(at)) for at in range(count)]
    return [replace(seen[0], good=1), *seen[1:-1], replace(seen[-1], **{"bad": 1, **last})]


def test_a_bad_end_that_passes_is_flaky():
    assert next_steps(ends(good=1), SearchTerms()).end is End.FLAKY


def test_a_good_end_that_fails_has_the_search_begin_before_it():
    seen = ends(bad=2)
    seen[0] = SeenCommit(sha="0", bad=1)
    assert next_steps(seen, SearchTerms()).end is End.GOOD_IS_BAD


def test_a_commit_that_cannot_be_confirmed_ends_the_search():
    seen = [*ends()[:-1], SeenCommit(sha="3", vain=2)]
    assert next_steps(seen, SearchTerms()).end is End.UNCONFIRMED
    assert next_steps([*seen[:-1], SeenCommit(sha="3", vain=2, silent=2)], SearchTerms()).end is End.SILENT
    assert next_steps(ends(vain=2), SearchTerms()).end is End.UNCONFIRMED
    assert next_steps(ends(vain=2, asked=True), SearchTerms()).end is None


def test_three_commits_without_an_answer_end_the_search():
    silent = {"vain": 2, "silent": 2}
    seen = ends(8, bad=2)
    seen[2:5] = [SeenCommit(sha=str(at), **silent) for at in (2, 3, 4)]
    assert next_steps(seen, SearchTerms()).end is End.SILENT


def test_both_ends_are_confirmed_together():
    seen = [SeenCommit(sha="0"), *ends()[1:]]
    decision = next_steps(seen, SearchTerms(parallel=2))
    assert [(step.sha, step.purpose) for step in decision.steps] == [
        ("3", Purpose.CONFIRM_BAD),
        ("0", Purpose.CONFIRM_GOOD),
    ]


def test_of_a_flaky_job_several_passes_confirm_that_it_passed_before():
    flaky = SearchTerms(flaky_rate=0.07)
    seen = ends(4, bad=3)
    assert next_steps(seen, flaky).steps == (("2", Purpose.SPLIT),)
    seen[2] = replace(seen[2], good=1)
    assert next_steps(seen, flaky).end is End.FOUND, "it passed twice, on two commits"
    alone = ends(2, bad=3)
    assert next_steps(alone, flaky).steps == (("0", Purpose.CONFIRM_GOOD),)


def test_nothing_is_sent_while_a_round_is_under_way():
    seen = ends(8, bad=2)
    seen[4] = replace(seen[4], asked=True)
    assert next_steps(seen, SearchTerms(parallel=2)).steps == ()


def test_what_runs_for_another_reason_is_waited_for_only_where_nothing_else_is_left():
    seen = ends(5, bad=2)
    seen[2] = replace(seen[2], pending=True)
    assert [step.sha for step in next_steps(seen, SearchTerms(parallel=1)).steps] == ["3"]
    only = ends(3, bad=2)
    only[1] = replace(only[1], pending=True)
    assert next_steps(only, SearchTerms()) == replace(next_steps(only, SearchTerms()), steps=(), end=None)


def test_a_result_of_another_run_saves_steps():
    seen = ends(9, bad=2)
    seen[4] = replace(seen[4], good=1)
    assert [step.sha for step in next_steps(seen, SearchTerms()).steps] == ["6"]


def test_contradictory_runs_are_repeated_up_to_five_times_and_then_left_alone():
    seen = ends(3, bad=2)
    seen[1] = replace(seen[1], good=1, bad=2)
    assert next_steps(seen, SearchTerms()).steps[0].sha == "1"
    seen[1] = replace(seen[1], good=1, bad=4)
    decision = next_steps(seen, SearchTerms())
    assert (decision.end, decision.good, decision.bad) == (End.FOUND, 0, 2)


def test_a_failure_that_was_found_early_has_to_fail_more_often():
    """Each number of other commits that may be the culprit: how often the first one fails before it is named."""
    for others, failures in ((1, 2), (2, 2), (3, 3), (125, 3), (126, 4)):
        seen = ends(others + 3, bad=2)
        seen[1], seen[2] = replace(seen[1], good=1), replace(seen[2], bad=1)
        for _ in range(failures - 1):
            assert next_steps(seen, SearchTerms()).steps == (("2", Purpose.CONFIRM_BAD),)
            seen[2] = run(seen[2], fails=True)
        assert next_steps(seen, SearchTerms()).end is End.FOUND
        assert bads_needed(others, 0) == failures


def test_what_fails_by_chance_and_passes_again_costs_the_rounds_that_closed_in_on_it():
    seen = ends(9, bad=2)
    seen[3], seen[4] = replace(seen[3], good=1), replace(seen[4], bad=1)
    assert next_steps(seen, SearchTerms()).steps == (("4", Purpose.CONFIRM_BAD),)
    seen[4] = run(seen[4], fails=False)
    assert next_steps(seen, SearchTerms()).steps == (("6", Purpose.SPLIT),)


def test_a_row_of_commits_that_cannot_be_built_is_left_quickly():
    """Forty in the middle of two hundred: of each that is tried the next one is twice as far away."""
    seen, tried = ends(200, bad=2), []
    while not tried or 80 <= tried[-1] < 120:
        (step,) = next_steps(seen, SearchTerms()).steps
        tried.append(int(step.sha))
        seen[tried[-1]] = run(seen[tried[-1]], fails=False, builds=False)
    assert len(tried) <= 7
    assert 50 <= tried[-1] < 150
