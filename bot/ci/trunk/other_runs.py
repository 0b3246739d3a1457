"""What has cells in the grid and is no job of upstream: runs without jobs, jobs of backends, checks of other Apps."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

from bot.ci.collect import job_names, states
from bot.ci.trunk import name_patterns
from bot.ci.trunk.cells import NO_FAILURE, Run
from bot.ci.trunk.same_names import FOREIGN_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.ci.trunk.grid import Facts
    from bot.ci.trunk.settings import TrunkSettings
    from bot.ci.trunk.store.rows import BackendJobRow, RunRow
    from bot.ingest.rows import CheckRunRow

Source = Literal["actions", "elsewhere", "oot", "check", "status"]
DID_NOT_START = "(did not start)"


class OtherCell(NamedTuple):
    """Where a run belongs."""

    sha: str
    name: str  # of the column
    workflow: str
    source: Source
    check: str = ""  # the name of the check run that it is


Found = tuple[OtherCell, Run]


def find_runs(facts: Facts, settings: TrunkSettings, *, shards: bool) -> Iterator[Found]:
    """Yield these runs with their places; with `shards` each shard of a backend's job has a column of its own."""
    yield from _unstarted(facts, settings)
    yield from _backend_runs(facts, shards=shards)
    yield from _check_runs(facts)


def _unstarted(facts: Facts, settings: TrunkSettings) -> Iterator[Found]:
    """Yield runs that ended before GitHub made their jobs: nothing else would show them."""
    for run in facts.runs:
        if run["unstarted"] and run["event"] not in FOREIGN_EVENTS:
            workflow = run["name"] or "workflow"
            if name := name_patterns.shown_name(workflow, f"{workflow} / {DID_NOT_START}", settings):
                yield OtherCell(run["head_sha"] or "", name, workflow, "actions"), _unstarted_run(run)


def _unstarted_run(run: RunRow) -> Run:
    conclusion = run["conclusion"] or ""
    return Run(
        id="",
        run_id=run["id"],
        status="completed",
        conclusion=conclusion,
        attempt=run["run_attempt"],
        event=run["event"] or "",
        actor=run["triggering_actor_login"] or "",
        completed_at=run["updated_at"],
        failure={**NO_FAILURE, "line": states.not_started(conclusion, run["path"])},
    )


def _backend_runs(facts: Facts, *, shards: bool) -> Iterator[Found]:
    for column, row, name in place_backend_jobs(facts, shards=shards):
        yield OtherCell(row["head_sha"] or "", column, "backends", "oot"), _reported(row, name)


def place_backend_jobs(
    facts: Facts, *, shards: bool
) -> Iterator[tuple[str, BackendJobRow, job_names.JobName]]:
    """Yield each job that a backend reported with the name of its column, and its own taken apart."""
    by_commit: defaultdict[tuple[str, str], list[BackendJobRow]] = defaultdict(list)
    for row in facts.backend_jobs:
        by_commit[row["head_sha"] or "", row["downstream_repo"]].append(row)
    for (_, backend), rows in by_commit.items():
        names = [job_names.parse_name(row["workflow_name"], row["job_name"]) for row in rows]
        label = facts.devices.get(backend.casefold(), backend)
        for row, name in zip(rows, names if shards else job_names.resolve_shards(names), strict=True):
            shown = f"{name.workflow} / {name.numbered}" if shards else name.shard_free
            yield f"backends / {label} / {shown}", row, name


def _reported(row: BackendJobRow, name: job_names.JobName) -> Run:
    return Run(
        id=row["run_id"],
        status=row["status"],
        conclusion=row["conclusion"] or "",
        attempt=row["run_attempt"],
        event=row["event_type"],
        shard=name.shard or 0,
        shards=name.shards or 0,
        completed_at=row["completed_at"],
        url=row["workflow_run_url"],
    )


def name_check(row: CheckRunRow) -> tuple[str, str]:
    """Return the column of another App's check run, and the name it has on GitHub."""
    check = row["name"] or ""
    return f"checks / {row['app_slug'] or 'app'} / {check}", check


def _check_runs(facts: Facts) -> Iterator[Found]:
    for row in facts.checks:
        name, check = name_check(row)
        yield (
            OtherCell(row["head_sha"] or "", name, "checks", "check", check),
            Run(
                id=str(row["id"]),
                status=row["status"] or "",
                conclusion=row["conclusion"] or "",
                completed_at=row["completed_at"],
            ),
        )
