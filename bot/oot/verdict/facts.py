"""What a verdict is judged from: what is known about a dispatch, and about the runs it led to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from bot.oot.results.store import announced_runs, jobs, reruns, run_statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.results.tables import DispatchRow, JobRow, RerunRow, RunStatusRow

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What is known about the runs of one backend."""

    jobs: Sequence[JobRow] = ()  # every attempt
    reruns: Sequence[RerunRow] = ()
    run_statuses: Mapping[tuple[str, int], RunStatusRow] = field(
        default_factory=dict
    )  # by run_id, run_attempt
    announced: Sequence[RunStatusRow] = ()  # runs that our event started and that have not reported

    @cached_property
    def reported(self) -> dict[str, int]:
        """The newest attempt of each run that was reported on."""
        attempts: dict[str, int] = {}
        for row in self.jobs:
            attempts[row["run_id"]] = max(attempts.get(row["run_id"], 1), row["run_attempt"])
        return attempts

    @cached_property
    def expected(self) -> dict[str, int]:
        """The attempt each run is at, counting requested re-runs that have not reported yet."""
        attempts = dict(self.reported)
        for row in self.reruns:
            if row["state"] != "impossible":
                attempts[row["run_id"]] = max(attempts.get(row["run_id"], 1), row["from_attempt"] + 1)
        return attempts

    @cached_property
    def latest(self) -> list[JobRow]:
        """The latest attempt of each job."""
        return latest(self.jobs)


@dataclass(frozen=True, kw_only=True)
class Facts(Reports):
    """What is known about one dispatch, and about those of pushes for the same commit of the pull request."""

    dispatch: DispatchRow

    @property
    def answered(self) -> bool:
        """Whether the dispatch itself was reported on, or need not be."""
        kind = self.dispatch["event_type"]
        return self.dispatch["answers"] == "some" or any(row["event_type"] == kind for row in self.jobs)

    def dispatch_of(self, run_id: str) -> str:
        """Return our key of the dispatch that a run was reported on."""
        found = next((row["dispatch_id"] for row in self.jobs if row["run_id"] == run_id), None)
        return found or self.dispatch["id"]


def with_push(facts: Facts, pushed: Facts) -> Facts:
    """Return the facts about a backend on a commit, of whose runs a push began some."""
    return replace(
        facts,
        jobs=(*facts.jobs, *pushed.jobs),
        reruns=(*facts.reruns, *pushed.reruns),
        run_statuses={**facts.run_statuses, **pushed.run_statuses},
        announced=(*facts.announced, *pushed.announced),
    )


async def read_facts(
    tx: Transaction, dispatches: Sequence[DispatchRow], *, tests_of: Collection[str] = ()
) -> dict[str, Facts]:
    """Return the facts of each dispatch by its id; failed tests and environment only of those in `tests_of`."""
    ids = [row["id"] for row in dispatches]
    reported = await jobs.read_for_dispatches(tx, ids, tests_of=tests_of)
    requested = await reruns.read_for_dispatches(tx, ids)
    backends = {row["id"]: row["backend_key"] for row in dispatches}
    runs = {(backends[row["dispatch_id"] or ""], row["run_id"]) for row in reported}
    statuses = await run_statuses.read_for_runs(tx, runs)
    jobs_of = _grouped(reported, lambda row: row["dispatch_id"])
    announced = await announced_runs.read_announced(
        tx, {(backends[key], row["run_id"]) for key, rows in jobs_of.items() if key for row in _ended(rows)}
    )
    reruns_of = _grouped(requested, lambda row: row["dispatch_id"])
    statuses_of = _grouped(statuses, lambda row: row["backend_key"])
    return {
        row["id"]: Facts(
            dispatch=row,
            jobs=jobs_of[row["id"]],
            announced=_announced(row["backend_key"], jobs_of[row["id"]], announced),
            reruns=reruns_of[row["id"]],
            run_statuses={
                (one["run_id"], one["run_attempt"]): one for one in statuses_of[row["backend_key"]]
            },
        )
        for row in dispatches
    }


def _ended(rows: Sequence[JobRow]) -> Sequence[JobRow]:
    """Return all jobs of a dispatch if none is unfinished: only then other runs decide."""
    return rows if all(row["status"] == "completed" for row in rows) else ()


def _announced(
    backend: str, rows: Sequence[JobRow], announced: Mapping[tuple[str, str], Sequence[RunStatusRow]]
) -> list[RunStatusRow]:
    beside = [one for row in rows for one in announced.get((backend, row["run_id"]), ())]
    return list({one["run_id"]: one for one in beside}.values())


def newest(dispatches: Sequence[DispatchRow]) -> dict[str, DispatchRow]:
    """Return the dispatch of each backend that counts: the newest that was not dropped, else the newest."""
    chosen: dict[str, DispatchRow] = {}
    for row in sorted(
        dispatches, key=lambda row: (row["state"] != "superseded", row["created_at"], row["id"])
    ):
        chosen[row["backend_key"]] = row
    return chosen


def of_own_events(dispatches: Sequence[DispatchRow]) -> list[DispatchRow]:
    """Return the dispatches without pushes that are about a pull request: these count beside the others."""
    return [row for row in dispatches if not _is_beside(row)]


def answered_pushes(dispatches: Sequence[DispatchRow]) -> list[DispatchRow]:
    """Return the dispatches of pushes about a pull request that count: of each ref the newest that was reported on.

    The silence of others is nothing. Different refs ask for different runs, so none takes the place of another.
    """
    answered = [row for row in dispatches if _is_beside(row) and row["heard_at"] is not None]
    oldest_first = sorted(answered, key=lambda row: (row["created_at"], row["id"]))
    return list({(row["backend_key"], row["ref"]): row for row in oldest_first}.values())


def _is_beside(row: DispatchRow) -> bool:
    return row["event_type"] == "push" and row["pr_number"] is not None


def merge_facts(
    known: Mapping[str, Facts], counting: Mapping[str, DispatchRow], pushed: Iterable[DispatchRow]
) -> dict[str, Facts]:
    """Return the facts of each backend, from those of each dispatch that counts and of the pushes beside it."""
    found = {key: known[row["id"]] for key, row in counting.items()}
    for row in pushed:
        key = row["backend_key"]
        mine = found.get(key)
        found[key] = with_push(mine, known[row["id"]]) if mine else known[row["id"]]
    return found


def latest(rows: Iterable[JobRow]) -> list[JobRow]:
    """Return each job's latest attempt, the jobs in the order they were first reported in."""
    chosen: dict[tuple[str, str, str], JobRow] = {}
    for row in rows:
        name = (row["run_id"], row["workflow_name"], row["job_name"])
        if name not in chosen or row["run_attempt"] > chosen[name]["run_attempt"]:
            chosen[name] = row
    return list(chosen.values())


def _grouped(rows: Iterable[T], key: Callable[[T], str | None]) -> defaultdict[str | None, list[T]]:
    found: defaultdict[str | None, list[T]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found
