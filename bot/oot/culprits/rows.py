"""Searches and their steps: reads and writes, copies for sinks, conditions, metrics, and deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa

from bot.core import metrics
from bot.core.feature import Condition, ConditionSubject
from bot.db.exports import (
    KEYS_PER_QUERY,
    Export,
    Shape,
    StoredObject,
    column_types,
    copy_of,
    json_line,
    object_key,
    read_rows,
    repo_key,
)
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.oot.allowlist import versions as allowlists
from bot.oot.culprits.tables import (
    OPEN,
    SIGNAL,
    BisectRow,
    CommentRow,
    StepRow,
    bisect,
    bisect_comment,
    bisect_step,
)
from bot.oot.publish.rows import begin_intent
from bot.oot.results.tables import oot_workflow_job
from bot.oot.statistics.stats import DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bot.context import Context
    from bot.core.feature import ConditionScope
    from bot.core.settings import Settings
    from bot.db.exports import ExportedRow, RowKey, TableCopy
    from bot.db.transaction import Transaction
    from bot.oot.culprits.tables import Signal
    from bot.oot.publish.rows import Intent
    from bot.web.access import Hidden

SEARCH, STEP = bisect.c, bisect_step.c
STATES = ("running", "waiting", "found", "not_found", "gave_up", "cancelled")
RECENT = 365 * 86_400_000  # milliseconds: what the measures are made of
_ID: sa.BindParameter[str] = sa.bindparam("of_id")
_get_one = select(BisectRow, bisect).where(SEARCH.id == _ID)
GET, GET_HELD = RowStatement(_get_one), RowStatement(_get_one.with_for_update())
STEPS = RowStatement(select(StepRow, bisect_step).where(STEP.bisect_id == _ID).order_by(STEP.number))
OPEN_IDS = Statement(sa.select(SEARCH.id).where(OPEN).order_by(SEARCH.created_at, SEARCH.id))
TIME = "DateTime64(3, 'UTC')"
STEP_TYPE = (
    "Tuple(number Int64, sha String, purpose String, round Int64, outcome String, detail String,"
    f" created_at {TIME}, sent_at {TIME}, ended_at {TIME})"
)
NOTICED_FOR = 86_400_000  # milliseconds: what was found before, while nothing was sent, is on the pages only


async def get_search(tx: Transaction, identifier: str, *, held: bool = False) -> BisectRow | None:
    """Return a search; `held` locks it until the transaction ends."""
    query = GET_HELD if held and not tx.sqlite else GET
    return await tx.fetch_first(query, {"of_id": identifier})


async def open_ids(tx: Transaction) -> list[str]:
    """Return the ids of the searches under way, oldest first."""
    return list((await tx.run(OPEN_IDS)).scalars())


async def open_ids_on(tx: Transaction, repository_id: int, branch: str) -> list[str]:
    """Return the ids of the searches of a branch under way."""
    query = sa.select(SEARCH.id).where(SEARCH.repository_id == repository_id, SEARCH.branch == branch, OPEN)
    return list((await tx.run(query.order_by(SEARCH.created_at, SEARCH.id))).scalars())


async def add_search(tx: Transaction, row: BisectRow) -> bool:
    """Record a search; returns False if one of its signal is under way."""
    tx.note_changed("bisect", [row])
    return bool((await tx.run(tx.insert(bisect).values(**row).on_conflict_do_nothing())).rowcount)


async def change_search(tx: Transaction, identifier: str, **values: Any) -> None:
    """Change some columns of a search."""
    values |= {"updated_at": tx.now}
    await tx.run(sa.update(bisect).where(SEARCH.id == identifier).values(values))
    tx.note_changed("bisect", [{"id": identifier}])


async def end_search(tx: Transaction, identifier: str, *, state: str, why: str, **values: Any) -> None:
    """End a search."""
    await change_search(tx, identifier, state=state, why=why, ended_at=tx.now, waits_until=None, **values)


async def find_open(tx: Transaction, signal: Signal) -> BisectRow | None:
    """Return the search of a signal that is under way."""
    named: Mapping[str, object] = dict(signal)
    same = [column == named[column.name] for column in SIGNAL]
    return await tx.fetch_first(select(BisectRow, bisect).where(*same, OPEN))


async def last_of_breakage(tx: Transaction, signal: Signal, bad_sha: str) -> BisectRow | None:
    """Return the last search of a signal with this bad end, whatever its outcome."""
    named: Mapping[str, object] = dict(signal)
    same = [column == named[column.name] for column in SIGNAL]
    query = select(BisectRow, bisect).where(*same, SEARCH.bad_sha == bad_sha)
    return await tx.fetch_first(query.order_by(SEARCH.created_at.desc()).limit(1))


async def read_searches_of(
    tx: Transaction, repository_id: int, *, limit: int, before: int | None = None, state: str = ""
) -> list[BisectRow]:
    """Return the newest searches of a repository."""
    query = select(BisectRow, bisect).where(SEARCH.repository_id == repository_id)
    if before is not None:
        query = query.where(SEARCH.created_at < before)
    if state:
        query = query.where(SEARCH.state == state)
    return await tx.fetch(query.order_by(SEARCH.created_at.desc(), SEARCH.id).limit(limit))


async def searches_of_branch(
    tx: Transaction, repository_id: int, branch: str, *, limit: int
) -> list[BisectRow]:
    """Return the newest searches of a branch."""
    query = select(BisectRow, bisect).where(SEARCH.repository_id == repository_id, SEARCH.branch == branch)
    return await tx.fetch(query.order_by(SEARCH.created_at.desc(), SEARCH.id).limit(limit))


async def read_found_on(tx: Transaction, repository_id: int, shas: Collection[str]) -> list[BisectRow]:
    """Return the searches that ended with one of these commits as the culprit."""
    if not shas:
        return []
    query = select(BisectRow, bisect).where(
        SEARCH.repository_id == repository_id,
        SEARCH.culprit_sha.in_(sorted(shas)),
        SEARCH.state == "found",
        SEARCH.confidence == "commit",
    )
    return await tx.fetch(query.order_by(SEARCH.ended_at, SEARCH.id))


async def read_found_since(tx: Transaction, repository_id: int | None, since: int) -> list[BisectRow]:
    """Return the searches of one repository or of all that found a commit since a time, oldest first."""
    query = select(BisectRow, bisect).where(
        SEARCH.state == "found", SEARCH.confidence == "commit", SEARCH.ended_at >= since
    )
    if repository_id is not None:
        query = query.where(SEARCH.repository_id == repository_id)
    return await tx.fetch(query.order_by(SEARCH.ended_at, SEARCH.id))


async def read_found_of_pull(tx: Transaction, repository_id: int, number: int) -> list[BisectRow]:
    """Return the searches whose culprit came from a pull request."""
    query = select(BisectRow, bisect).where(
        SEARCH.repository_id == repository_id,
        SEARCH.pr_number == number,
        SEARCH.state == "found",
        SEARCH.confidence == "commit",
    )
    return await tx.fetch(query.order_by(SEARCH.ended_at, SEARCH.id))


async def count_states(tx: Transaction) -> dict[str, int]:
    """Count the searches in each state."""
    states = await tx.run(sa.select(SEARCH.state, sa.func.count()).group_by(SEARCH.state))
    counted: dict[str, int] = dict(map(tuple, states))
    return {state: counted.get(state, 0) for state in STATES}


async def count_runs(tx: Transaction) -> int:
    """Count the steps that were ever sent."""
    query = sa.select(sa.func.count()).select_from(bisect_step).where(STEP.sent_at.is_not(None))
    return int((await tx.run(query)).scalar() or 0)


async def steps_of(tx: Transaction, identifier: str) -> list[StepRow]:
    """Return the steps of a search in the order of their numbers."""
    return await tx.fetch(STEPS, {"of_id": identifier})


async def steps_of_searches(tx: Transaction, identifiers: Collection[str]) -> dict[str, list[StepRow]]:
    """Return the steps of some searches, each in the order of their numbers."""
    query = select(StepRow, bisect_step).where(STEP.bisect_id.in_(sorted(identifiers)))
    by_search: dict[str, list[StepRow]] = {}
    for step in await tx.fetch(query.order_by(STEP.bisect_id, STEP.number)):
        by_search.setdefault(step["bisect_id"], []).append(step)
    return by_search


async def get_step(tx: Transaction, identifier: str, number: int) -> StepRow | None:
    """Return one step of a search."""
    query = select(StepRow, bisect_step).where(STEP.bisect_id == identifier, STEP.number == number)
    return await tx.fetch_first(query)


async def add_steps(tx: Transaction, steps: Sequence[StepRow]) -> None:
    """Record steps before they are sent."""
    if steps:
        await tx.run(sa.insert(bisect_step), [dict(step) for step in steps])
        tx.note_changed(
            "bisect", [{"id": identifier} for identifier in {step["bisect_id"] for step in steps}]
        )


async def change_step(tx: Transaction, step: StepRow, **values: Any) -> None:
    """Change some columns of a step."""
    mine = (STEP.bisect_id == step["bisect_id"], STEP.number == step["number"])
    await tx.run(sa.update(bisect_step).where(*mine).values(values))
    tx.note_changed("bisect", [{"id": step["bisect_id"]}])


async def sent_on_day(tx: Transaction, backend: str, since: int) -> list[int]:
    """Return when steps were recorded since a time for a backend (empty: upstream's own CI), oldest first."""
    query = sa.select(STEP.created_at).join(bisect, SEARCH.id == STEP.bisect_id)
    query = query.where(STEP.created_at > since, sa.func.lower(SEARCH.backend) == backend.casefold())
    return list((await tx.run(query.order_by(STEP.created_at))).scalars())


async def intend_comment(tx: Transaction, search: BisectRow, number: int) -> Intent:
    """Record that the comment on the culprit's pull request is about to be made."""
    row = {
        "bisect_id": search["id"], "upstream_repo": search["upstream_repo"], "pr_number": number, "comment_id": None,
        "digest": "",
    }  # fmt: skip
    return await begin_intent(tx, bisect_comment, row)


async def get_comment(tx: Transaction, identifier: str) -> CommentRow | None:
    """Return our comment on what a search found."""
    return await tx.fetch_first(
        select(CommentRow, bisect_comment).where(bisect_comment.c.bisect_id == identifier)
    )


async def record_comment(tx: Transaction, identifier: str, *, comment_id: int | None, digest: str) -> None:
    """Record the comment as written."""
    values: Mapping[str, object] = {"comment_id": comment_id, "digest": digest}
    await tx.run(sa.update(bisect_comment).where(bisect_comment.c.bisect_id == identifier).values(values))


async def delete_old(tx: Transaction, before: int) -> int:
    """Delete searches that ended before a time; returns how many."""
    old = sa.select(SEARCH.id).where(SEARCH.ended_at < before)
    await tx.run(sa.delete(bisect_step).where(STEP.bisect_id.in_(old)))
    await tx.run(sa.delete(bisect_comment).where(bisect_comment.c.bisect_id.in_(old)))
    return int((await tx.run(sa.delete(bisect).where(SEARCH.ended_at < before))).rowcount)


async def searches_of_runs(tx: Transaction, sha: str, run_ids: Collection[str]) -> list[tuple[str, str]]:
    """Return which of some runs on a commit a search asked for: the id of each run, and that of its search."""
    reported = oot_workflow_job.c
    query = sa.select(reported.run_id, STEP.bisect_id).join(
        bisect_step, STEP.dispatch_id == reported.dispatch_id
    )
    query = query.where(reported.head_sha == sha, reported.run_id.in_(sorted(run_ids))).distinct()
    return [(run_id, search) for run_id, search in await tx.run(query)]


async def read_searches(tx: Transaction, export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return searches with their steps."""
    searches = await read_rows(tx, export, keys)
    identifiers = [str(key[0]) for key in searches]
    steps: dict[str, list[StepRow]] = {}
    for start in range(0, len(identifiers), KEYS_PER_QUERY):
        steps |= await steps_of_searches(tx, identifiers[start : start + KEYS_PER_QUERY])
    return {key: {**row, "steps": _described(steps.get(row["id"], []))} for key, row in searches.items()}


def copy_search(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a search as an object below its repository."""
    key = "/".join((export.name, repo_key(row["upstream_repo"]), object_key(row["id"])))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


def copy_search_rows(export: Export) -> TableCopy:
    """Return the copy of searches for a table of ours."""
    return copy_of(export, {**column_types(export.table), "steps": f"Array({STEP_TYPE})"})


def _shape(make: str) -> Shape:
    module = "bot.oot.culprits.rows"
    return Shape(make=f"{module}:{make}", read=f"{module}:read_searches", most=500)


EXPORTS = (
    Export(
        name="bisects",
        table=bisect,
        day="created_at",
        repositories=("repository_id", "upstream_repo", "backend"),
        shapes={"upstream": _shape("copy_search"), "clickhouse.ootbot": _shape("copy_search_rows")},
    ),
)


def page_of_search(search: BisectRow) -> str:
    """Return the page of a search, below the address of this bot."""
    return f"/{search['upstream_repo']}/bisects/{search['id']}"


async def read_conditions(_context: Context, tx: Transaction, scope: ConditionScope) -> list[Condition]:
    """Return the culprits found in the last day; a finished search never changes again."""
    listed = await allowlists.read_in_force(tx)
    conditions = []
    for search in await read_found_since(tx, None, tx.now - NOTICED_FOR):
        backend = search["backend"]
        if scope.hidden.has(search["upstream_repo"], search["repository_id"]) or (
            backend and scope.hidden.has(backend)
        ):
            continue
        entry = listed.find(backend) if listed and backend else None
        about = ConditionSubject(
            repo=search["upstream_repo"],
            branch=search["branch"],
            backend=backend,
            oncalls=entry.oncalls if entry else (),
            path=page_of_search(search),
        )
        conditions.append(
            Condition(
                event="culprit_found",
                key=search["id"],
                holds=True,
                heading=search["why"],
                since=search["ended_at"],
                subject=about,
            )
        )
    return conditions


async def measure_searches(tx: Transaction, _settings: Settings, _hidden: Hidden) -> Callable[[], None]:
    """Return a function that sets the gauges of searches by state and of the runs they took."""
    states, runs = await count_states(tx), await count_runs(tx)

    def show() -> None:
        for state, number in states.items():
            metrics.BISECTS.labels(state).set(number)
        metrics.BISECT_RUNS.set(runs)

    return show


async def delete_old_searches(context: Context) -> dict[str, int]:
    """Delete searches past the retention of records."""
    before = context.clock.now() - context.settings.record_retention_days * DAY
    async with context.store.transaction() as tx:
        return {"searches for culprits": await delete_old(tx, before)}


def _described(steps: Sequence[StepRow]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in cast("dict[str, Any]", step).items() if name != "bisect_id"}
        for step in steps
    ]
