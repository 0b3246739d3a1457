"""Which jobs are one: attempts and repeats of a job are, two jobs of one name are not, of one run or of two workflows.

What a workflow run says of its jobs counts, too: whether they are about the commit, may fail, or will never end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.trunk.cells import CONCLUSIONS, STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bot.ci.trunk.store.rows import RunRow
    from bot.ci.trunk.tables import CellRow

# events whose runs have nothing to do with the commit they carry
FOREIGN_EVENTS = frozenset({"workflow_run", "issue_comment", "repository_dispatch"})
GOOD_ENDS = frozenset({"success", "neutral", "skipped"})  # of a run
COMPLETED, WAITING = STATES.index("completed"), STATES.index("waiting")
_SUCCESS, _ALLOWED, _SKIPPED, _CANCELLED = map(
    CONCLUSIONS.index, ("success", "allowed", "skipped", "cancelled")
)
_FAILED = frozenset(CONCLUSIONS.index(word) for word in ("failure", "timed_out"))
_JUDGED_BY_RUN = _FAILED | {0}


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What workflow runs say of their jobs, by their ids."""

    foreign: frozenset[int]  # those that say nothing about their commit
    workflows: Mapping[int, int]
    newest: Mapping[int, int]  # attempt
    ended: Mapping[tuple[int, int], str]  # conclusions of attempts that are over


class Placed(NamedTuple):
    """A run of a job with its column, and which of several jobs of its name it is."""

    column: int
    row: CellRow
    twin: int


def describe_runs(runs: Iterable[RunRow]) -> RunFacts:
    """Return what workflow runs say of their jobs."""
    newest: dict[int, int] = {}
    workflows: dict[int, int] = {}
    ended: dict[tuple[int, int], str] = {}
    foreign = set()
    for run in runs:
        newest[run["id"]] = max(newest.get(run["id"], 0), run["run_attempt"])
        if run["event"] in FOREIGN_EVENTS:
            foreign.add(run["id"])
        if run["workflow_id"] is not None:
            workflows[run["id"]] = run["workflow_id"]
        if run["status"] == "completed":
            ended[run["id"], run["run_attempt"]] = run["conclusion"] or ""
    return RunFacts(foreign=frozenset(foreign), workflows=workflows, newest=newest, ended=ended)


def place_jobs(rows: Sequence[CellRow], about: RunFacts, *, shards: bool) -> Iterator[Placed]:
    """Yield each run that is about its commit with its place; with `shards` each shard has a column of its own.

    A pair of numbers is a shard only beside another one of as many.
    """
    sharded: defaultdict[tuple[str, int, int], set[int]] = defaultdict(set)
    for row in rows:
        if row["shards"]:
            sharded[row["head_sha"], row["column_id"], row["shards"]].add(row["shard"])
    alike: defaultdict[tuple[str, int, int], list[CellRow]] = defaultdict(list)
    for row in rows:
        if row["run_id"] in about.foreign:
            continue
        column, count = row["column_id"], row["shards"]
        told = _with_run(row, about) if row["conclusion"] in _JUDGED_BY_RUN else row
        if count and (shards or len(sharded[row["head_sha"], column, count]) < 2):
            column, told = row["numbered_column_id"] or column, {**told, "shard": 0, "shards": 0}
        alike[row["head_sha"], column, told["shard"]].append(told)
    for (_, column, _), found in alike.items():
        if len(found) == 1:  # nearly always
            yield Placed(column, found[0], 0)
            continue
        twins = _number_twins(found, about.workflows)
        for row in found:
            yield Placed(column, row, twins.get(row["job_id"], 0))


def _with_run(row: CellRow, about: RunFacts) -> CellRow:
    """Return a job as its run lets it end.

    A failure in a run that succeeded is allowed. What GitHub leaves unfinished in a run that is over ended with it.
    """
    run, attempt = row["run_id"], row["attempt"]
    if row["conclusion"] in _FAILED and about.ended.get((run, attempt)) == "success":
        return {**row, "conclusion": _ALLOWED}
    if row["conclusion"] == 0 and ((run, attempt) in about.ended or about.newest.get(run, 0) > attempt):
        good = about.ended.get((run, attempt)) in GOOD_ENDS
        return {
            **row,
            "state": COMPLETED,
            "conclusion": _SKIPPED if good else _CANCELLED,
            "completed_at": None,
        }
    return row


def _number_twins(rows: Sequence[CellRow], workflows: Mapping[int, int]) -> dict[int, int]:
    """Return which of several jobs of one name each is, by the ids of the jobs; nearly always there is one only.

    A run whose workflow is not known counts as of the first one.
    """
    known = {workflows[row["run_id"]] for row in rows if row["run_id"] in workflows}
    at_once = Counter((row["run_id"], row["attempt"]) for row in rows)
    if len(known) < 2 and max(at_once.values()) < 2:
        return {}
    first = min(known, default=0)
    by_workflow: defaultdict[int, list[CellRow]] = defaultdict(list)
    for row in rows:
        by_workflow[workflows.get(row["run_id"], first)].append(row)
    found: dict[int, int] = {}
    start = 0
    for _, each in sorted(by_workflow.items()):
        most = max(at_once[row["run_id"], row["attempt"]] for row in each)
        for job, twin in _number_jobs(each, most).items():
            found[job] = start + twin
        start += most
    return found


def _number_jobs(rows: Sequence[CellRow], most: int) -> dict[int, int]:
    """Return which of the jobs of one name of a workflow each is; its runs have at most so many of them.

    Where an attempt has all of them, they come in the order of their ids. Where it has fewer, GitHub ran those again
    that had failed, and lists the others as they were.
    """
    if most < 2:
        return {row["job_id"]: 0 for row in rows}
    found: dict[int, int] = {}
    by_run: defaultdict[int, defaultdict[int, list[CellRow]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row["job_id"]):
        by_run[row["run_id"]][row["attempt"]].append(row)
    for attempts in by_run.values():
        newest: dict[int, CellRow] = {}
        for _, each in sorted(attempts.items()):
            numbered = _number_attempt(each, newest, most)
            newest |= numbered
            found |= {row["job_id"]: twin for twin, row in numbered.items()}
    return found


def _number_attempt(rows: Sequence[CellRow], newest: Mapping[int, CellRow], most: int) -> dict[int, CellRow]:
    """Return the jobs of one attempt by their numbers; `newest` are those of the attempts before."""
    found: dict[int, CellRow] = {}
    others = []
    for row in rows:
        copies = (twin for twin in sorted(newest) if twin not in found and is_copy(row, newest[twin]))
        if (twin := next(copies, None)) is None:
            others.append(row)
        else:
            found[twin] = row
    free = [twin for twin in range(most) if twin not in found]
    if len(rows) < most:
        free.sort(key=lambda twin: (twin in newest and newest[twin]["conclusion"] == _SUCCESS, twin))
    return found | dict(zip(free, others, strict=False))


def is_copy(row: CellRow, before: CellRow) -> bool:
    """Whether a job is another one that a later attempt lists again: GitHub copies what had passed, with its times."""
    return row["completed_at"] is not None and all(
        row[name] == before[name] for name in ("started_at", "completed_at", "conclusion")
    )
