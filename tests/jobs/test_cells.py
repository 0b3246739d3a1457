"""Cells and trouble: the rules of docs/ci.md, by its own example and by permutation."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest

from bot.jobs import branch_history
from bot.jobs.branch_history import ColumnState
from bot.jobs.cells import NO_FAILURE, Cell, Run, cell, details

DOCUMENT = Path(__file__).parents[2] / "docs" / "ci.md"
LINE = re.compile(r"^\| ([A-E]) \| (s1[^|]*) \| ([^|]*) \|", re.MULTILINE)


def run(text):
    shard, outcome, number = text.split()
    conclusion = "" if outcome == "in_progress" else outcome
    status = "completed" if conclusion else outcome
    return Run(id=number, status=status, conclusion=conclusion, shard=int(shard[1:]), shards=2)


def documented():
    """The example of the document: by commit its runs and the cell that is promised, oldest first."""
    found = LINE.findall(DOCUMENT.read_text())
    return {
        sha: ([run(each) for each in runs.split(", ")], promised.strip()) for sha, runs, promised in found
    }


def text(shown):
    return (
        f"{shown.character} {shown.count[0]}/{shown.count[1]}" if shown.character == "X" else shown.character
    )


def column(characters):
    """Cells by character, oldest first as people write them; a dot is a commit without one."""
    outcomes = {"O": "success", "X": "failure", "T": "timed_out", "C": "cancelled", "S": "skipped", "?": ""}

    def one(character):
        if character == ".":
            return None
        runs = ("failure", "success") if character == "F" else (outcomes[character],)
        return cell(
            Run(id=str(number), status="completed" if run else "in_progress", conclusion=run)
            for number, run in enumerate(runs)
        )

    return [one(character) for character in reversed(characters)]


def test_the_example_of_the_document_holds():
    example = documented()
    assert list(example) == ["A", "B", "C", "D", "E"]
    for runs, promised in example.values():
        for order in itertools.permutations(runs):
            assert text(cell(order)) == promised


def test_the_example_breaks_as_the_document_says():
    cells = [cell(runs) for runs, _ in documented().values()]
    newest_first = list(reversed(cells))
    assert branch_history.breakage(newest_first[1:]) is None
    assert branch_history.column_state(newest_first[1:]) is ColumnState.SUSPECT
    broken = branch_history.breakage(newest_first)
    assert (broken.first_bad, broken.last_good, list(broken.suspects)) == (2, 3, [2])
    split = branch_history.reliability(newest_first)
    assert (split.runs, split.passed, split.broken, split.flaky, split.infra) == (5, 2, 3, 1, 0)
    split = branch_history.reliability(newest_first, outage={1})
    assert (split.runs, split.passed, split.broken, split.flaky, split.infra) == (5, 2, 0, 3, 1)
    assert newest_first[3].job == 11


def test_who_decides_does_not_depend_on_the_order_of_the_runs():
    chance = random.Random(7)
    conclusions = (
        "success",
        "failure",
        "timed_out",
        "cancelled",
        "skipped",
        "neutral",
        "stale",
        "",
        "action_required",
    )
    for _ in range(300):
        runs = [
            Run(id=chance.choice(["1", "2", "10", "x", ""]), status="queued", conclusion=chance.choice(conclusions),
                shard=chance.choice([0, 0, 1, 2]))
            for _ in range(chance.randrange(1, 6))
        ]  # fmt: skip
        first = cell(runs)
        chance.shuffle(runs)
        assert cell(runs) == first


@pytest.mark.parametrize(
    ("runs", "character"),
    [
        (["success", "cancelled"], "O"),
        (["cancelled"], "C"),
        (["cancelled", "failure"], "X"),
        (["success", "timed_out"], "F"),
        (["startup_failure"], "X"),
        (["action_required"], "X"),
        (["skipped", ""], "?"),
        (["neutral", "skipped"], "N"),
        (["new_word"], "U"),
    ],
)
def test_several_runs_make_one_character(runs, character):
    made = cell(Run(id=str(n), status="in_progress", conclusion=each) for n, each in enumerate(runs))
    assert made.character == character


def test_of_attempts_without_an_id_of_their_own_the_last_one_decides():
    """As of a backend's job, which has its run's id, and of a run that never had a job."""
    runs = [
        Run(id="", run_id=7, status="completed", conclusion="failure", attempt=attempt, completed_at=attempt)
        for attempt in (1, 2, 3)
    ]
    runs.append(Run(id="", run_id=7, status="completed", conclusion="failure", attempt=3, url="https://b.c"))
    for order in itertools.permutations(runs):
        found = details(order)
        assert found.runs == (runs[3], runs[2], runs[1], runs[0])


def test_a_job_that_waits_is_queued_and_not_running():
    assert cell([Run(id="1", status="waiting", conclusion="")]).character == "Q"
    assert cell([Run(id="1", status="in_progress", conclusion="")]).character == "?"


@pytest.mark.parametrize(
    ("characters", "state"),
    [
        ("OOO", ColumnState.OK),
        ("OOX", ColumnState.SUSPECT),
        ("OXX", ColumnState.SUSPECT),
        ("OXTX", ColumnState.BROKEN),
        ("OXCXSX", ColumnState.BROKEN),
        ("OXXX?", ColumnState.BROKEN),
        ("OXXXF", ColumnState.BROKEN),
        ("OXXXFO", ColumnState.OK),
        ("OXXF", ColumnState.OK),
        ("XXX...", ColumnState.UNKNOWN),
        ("", ColumnState.UNKNOWN),
        ("SSS", ColumnState.UNKNOWN),
    ],
)
def test_the_state_of_a_column(characters, state):
    assert branch_history.column_state(column(characters)) is state


def test_changes_name_the_first_bad_commit_and_the_last_good_one():
    found = list(branch_history.changes(column("OXXXXFOX")))  # places from the newest: 7 to 0
    assert [(each.before, each.after) for each in found] == [
        (ColumnState.OK, ColumnState.SUSPECT),
        (ColumnState.SUSPECT, ColumnState.BROKEN),
        (ColumnState.BROKEN, ColumnState.OK),
        (ColumnState.OK, ColumnState.SUSPECT),
    ]
    assert [(each.place, each.first_bad, each.last_good) for each in found] == [
        (6, 6, 7), (4, 6, 7), (1, 6, 7), (0, 0, 1),
    ]  # fmt: skip


def test_failures_that_look_different_are_not_one_breakage():
    assert branch_history.breakage([failure("a"), failure("a"), failure(None)]).same
    assert not branch_history.breakage([failure("a"), failure("b"), failure(None)]).same


def failure(signature):
    """The cell of a failure; without a signature its log was not read."""
    cause = {**NO_FAILURE, "signature": signature, "failure_kind": "test"} if signature else None
    return cell([Run(id="1", status="completed", conclusion="failure", failure=cause)])


def failed(*signatures):
    """A column with a pass, then failures with these signatures, oldest first; None: its log was not read."""
    return [*map(failure, reversed(signatures)), *column("O")]


@pytest.mark.parametrize(
    ("signatures", "expected"),
    [
        (("a", "a"), [(ColumnState.SUSPECT, 1)]),
        (("a", None), [(ColumnState.SUSPECT, 1)]),
        (("a", "b"), [(ColumnState.SUSPECT, 1), (ColumnState.SUSPECT, 0)]),
        (("a", "b", "b"), [(ColumnState.SUSPECT, 2), (ColumnState.SUSPECT, 1), (ColumnState.BROKEN, 2)]),
        (("a", None, "b"), [(ColumnState.SUSPECT, 2), (ColumnState.BROKEN, 2)]),
    ],
)
def test_a_failure_that_looks_different_is_suspected_of_its_own(signatures, expected):
    found = list(branch_history.changes(failed(*signatures)))
    assert [(each.after, each.first_bad) for each in found] == expected
    assert {each.last_good for each in found} == {len(signatures)}
    (mended,) = list(branch_history.changes([*column("O"), *failed(*signatures)]))[len(expected) :]
    assert (mended.before, mended.first_bad) == (expected[-1][0], expected[-1][1] + 1)


def test_an_outage_needs_many_columns_of_more_than_one_workflow():
    columns = [("pull" if at else "docs", column("OX")) for at in range(branch_history.OUTAGE_FROM)]
    assert branch_history.outages(columns) == {0}
    assert branch_history.outages(columns[:-1]) == frozenset()
    assert branch_history.outages([("pull", one) for _, one in columns]) == frozenset()
    assert branch_history.outages([]) == frozenset()


def test_a_lone_failure_between_passes_is_a_flake():
    assert branch_history.flakes(column("OXO")) == {1}
    assert branch_history.flakes(column("OXX")) == frozenset()
    assert branch_history.flakes(column("OXXO")) == frozenset()
    assert branch_history.flakes([*column("O"), *failed("a", "b")]) == {1, 2}  # each alone of its kind
    assert branch_history.flakes([*column("O"), *failed("a", "a")]) == frozenset()
    assert branch_history.flakes(column("OF")) == {0}
    assert isinstance(column("O")[0], Cell)


@pytest.mark.parametrize(
    ("runs", "infra"),
    [
        ("1 infra", True),
        ("1 infra, 1 test", False),
        ("1 infra, 2 test", False),
        ("1 infra, 2 infra", True),
        ("1 infra, 2 infra, 2 none", False),
        ("1 infra, 2 unread", False),
        ("1 infra, 2 passes", True),
        ("1 infra, 1 passes", False),
    ],
)
def test_the_infrastructure_is_to_blame_where_all_failures_say_so(runs, infra):
    """Given by shard, and by the kind that the log of each run says."""

    def one(number, text):
        shard, kind = text.split()
        return Run(
            id=str(number),
            status="completed",
            conclusion="success" if kind == "passes" else "failure",
            shard=int(shard),
            shards=2,
            failure=None if kind in {"unread", "passes"} else {**NO_FAILURE, "failure_kind": kind},
        )

    assert cell(one(number, text) for number, text in enumerate(runs.split(", "))).infra is infra


def test_a_full_result_waits_for_the_last_shard_and_a_failure_is_known_with_the_first():
    def shard(number, conclusion, ended):
        return Run(
            id=str(number),
            status="completed",
            conclusion=conclusion,
            shard=number,
            shards=3,
            completed_at=ended,
        )

    passed = cell([shard(1, "success", 30), shard(2, "success", 20), shard(3, "success", 10)])
    assert (passed.first_ended_at, passed.last_ended_at) == (10, 30)
    failed = cell([shard(1, "success", 5), shard(2, "failure", 20), shard(3, "failure", 25)])
    assert (failed.first_ended_at, failed.last_ended_at) == (20, 25)
    alone = cell([Run(id="1", status="completed", conclusion="success", completed_at=7)])
    assert (alone.first_ended_at, alone.last_ended_at) == (7, 7)
