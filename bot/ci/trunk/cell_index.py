"""The index of cells: what every workflow job says of a commit, written in the transaction that records the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, cast

import sqlalchemy as sa

from bot.ci.trunk import branches, changed_days, column_ids, folded_commits, runner_labels, stored_cells
from bot.ci.trunk.branches import HEADS, BranchPush
from bot.ci.trunk.cells import CONCLUSIONS, STATES
from bot.ci.trunk.tables import branch_commit, ci_cell
from bot.core import escaping
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.trunk.column_ids import Named
    from bot.db.transaction import Changed, Transaction

TITLE_MOST = 120  # characters
MERGE = "Merge pull request #"
GITHUB_ACTIONS = "github-actions"  # whose check runs are its jobs
STATE_OF = {"requested": 0, "pending": 0} | {word: code for code, word in enumerate(STATES)}
COMMIT = branch_commit.c
CONCLUSION_OF = {word: code for code, word in enumerate(CONCLUSIONS)}
OTHER = CONCLUSION_OF["other"]
# what a job's record decides; what its log and tests add stays when the record changes
_FROM_RECORD = (
    "numbered_column_id", "run_id", "attempt", "shard", "shards", "state", "conclusion", "queued_at", "started_at",
    "completed_at", "runner_label",
)  # fmt: skip

_OF_COMMIT = ("at", "title", "author", "pr_number")
_OF_PUSH: Mapping[str, Any] = {"parent": "", "replaces": "", "folded": 0}


class _Job(TypedDict):
    """What the index needs of a workflow job's record."""

    repository_id: int
    id: int
    run_id: int | None
    run_attempt: int | None
    name: str | None
    workflow_name: str | None
    status: str | None
    conclusion: str | None
    head_sha: str | None
    labels: list[str] | None
    created_at: int | None
    started_at: int | None
    completed_at: int | None


class _Push(BranchPush):
    """What the index needs of a push."""

    before: str | None
    after: str | None
    forced: bool | None
    commits: list[str] | None
    head_commit_message: str | None
    head_commit_timestamp: int | None
    pusher_name: str | None


class _Run(TypedDict):
    """What the index needs of a workflow run."""

    repository_id: int
    head_sha: str | None


class _Check(TypedDict):
    """What the index needs of a check run."""

    repository_id: int
    head_sha: str | None
    app_slug: str | None


class _Reported(TypedDict):
    """What the index needs of a backend's job."""

    head_sha: str | None
    pr_number: int | None


async def write(tx: Transaction, changed: Changed) -> None:
    """Before a commit: write the cells of changed jobs and the commits of new pushes."""
    jobs = cast("Sequence[_Job]", changed.get("workflow_job", ()))
    runs = cast("Sequence[_Run]", changed.get("workflow_run", ()))
    on_commits = [job for job in jobs if job["head_sha"]]
    if on_commits:
        await _write_cells(tx, on_commits)
    await stored_cells.changed(
        tx, [(one["repository_id"], sha) for one in (*on_commits, *runs) if (sha := one["head_sha"])]
    )
    if pushes := cast("Sequence[_Push]", changed.get("push", ())):
        await _write_commits(tx, pushes)
        await branches.note(tx, pushes)
    checks = cast("Sequence[_Check]", changed.get("check_run", ()))
    reported = cast("Sequence[_Reported]", changed.get("oot_workflow_job", ()))
    shas = {one["head_sha"] for one in (*on_commits, *runs)} | {push["after"] for push in pushes}
    shas |= {row["head_sha"] for row in checks if row["app_slug"] != GITHUB_ACTIONS}
    shas |= {row.get("head_sha") for row in reported if row.get("pr_number") is None}
    runners = {(job["repository_id"], job["created_at"] // DAY) for job in on_commits if job["created_at"]}
    await changed_days.request_of_commits(tx, {sha for sha in shas if sha}, runners)


async def _write_cells(tx: Transaction, jobs: Sequence[_Job]) -> None:
    names = [column_ids.named(job["workflow_name"] or "", job["name"] or escaping.NAMELESS) for job in jobs]
    both = list(zip(jobs, names, strict=True))
    days = [(job["repository_id"], name, (job["created_at"] or tx.now) // DAY) for job, name in both]
    ids = await column_ids.of(tx, days)
    rows = {(job["repository_id"], job["id"]): _cell(job, name, ids) for job, name in both}
    await tx.upsert(ci_cell, [rows[place] for place in sorted(rows)], replaced=_FROM_RECORD)


def _cell(job: _Job, name: Named, ids: Mapping[column_ids.Key, int]) -> Mapping[str, Any]:
    repository = job["repository_id"]
    conclusion = job["conclusion"] or ""
    return {
        "repository_id": repository,
        "head_sha": job["head_sha"],
        "column_id": ids[repository, name.workflow, name.job],
        "job_id": job["id"],
        "numbered_column_id": name.numbered and ids[repository, name.workflow, name.numbered],
        "run_id": job["run_id"] or 0,
        "attempt": job["run_attempt"] or 1,
        "shard": name.shard,
        "shards": name.shards,
        "state": STATE_OF.get(job["status"] or "", 0),
        "conclusion": CONCLUSION_OF.get(conclusion, OTHER),
        "queued_at": job["created_at"],
        "started_at": job["started_at"],
        "completed_at": job["completed_at"] if conclusion else None,
        "runner_label": runner_labels.stored(job["labels"] or []),
    }


async def _write_commits(tx: Transaction, pushes: Sequence[_Push]) -> None:
    """Write the head of each push to a branch; a branch that was deleted has none.

    A head may be pushed more than once: of two pushes the greater text counts, so that their order does not. What
    GitHub's list said before gives way to a push.
    """
    rows: dict[tuple[int, str, str], dict[str, Any]] = {}
    for push in pushes:
        if (row := _commit(push)) is not None:
            place = (row["repository_id"], row["branch"], row["sha"])
            rows[place] = _greater(rows[place], row) if place in rows else row
    if not rows:
        return
    statement = tx.insert(branch_commit)
    new = statement.excluded
    update: dict[str, Any] = {
        name: sa.case((COMMIT.listed, new[name]), else_=COMMIT[name]) for name in _OF_COMMIT
    }
    update |= {
        name: sa.case(
            (COMMIT.listed | (new[name] > sa.func.coalesce(COMMIT[name], least)), new[name]),
            else_=COMMIT[name],
        )
        for name, least in _OF_PUSH.items()
    }
    keys = [column.name for column in branch_commit.primary_key.columns]
    ordered = [rows[place] for place in sorted(rows)]
    update["listed"] = sa.false()
    await tx.run(statement.on_conflict_do_update(index_elements=keys, set_=update), ordered)
    for push in pushes:
        await _fold(tx, push)


async def _fold(tx: Transaction, push: _Push) -> None:
    """Fold the commits that came with a push under its head."""
    reference, came = push["ref"] or "", set(push["commits"] or ()) - {push["after"]}
    if came and reference.startswith(HEADS):
        await folded_commits.fold_lines(tx, push["repository_id"], reference.removeprefix(HEADS), came)


def _greater(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {
        name: max(one[name] or least, other[name] or least) or one[name] for name, least in _OF_PUSH.items()
    }
    return {**one, **chosen}


def _commit(push: _Push) -> dict[str, Any] | None:
    """Return the row of a push's head, None where nothing was pushed to a branch."""
    reference, sha = push["ref"] or "", push["after"]
    if push["deleted"] or not sha or not reference.startswith(HEADS):
        return None
    title = title_of(push["head_commit_message"] or "")
    before = push["before"] if push["before"] and push["before"].strip("0") else None
    return {
        "repository_id": push["repository_id"],
        "branch": reference.removeprefix(HEADS),
        "sha": sha,
        "parent": None if push["forced"] else before,
        "replaces": before if push["forced"] else None,
        "at": push["head_commit_timestamp"] or push["received_at"],
        "title": title,
        "author": push["pusher_name"],
        "pr_number": pull_number(title),
        "folded": max(0, len(push["commits"] or []) - 1),
        "gone": False,
        "listed": False,
    }


def title_of(message: str) -> str:
    """Return the first line of a commit's message, cut."""
    return escaping.one_line(message.partition("\n")[0])[:TITLE_MOST]


def pull_number(title: str) -> int | None:
    """Return the number of the pull request that a commit came from, by the titles that GitHub gives them.

    A squashed one ends with it, as in "... (#123)"; a merge begins with "Merge pull request #123 from".
    """
    _, found, last = title.rpartition("(#")
    digits = last.removesuffix(")")
    if not (found and last.endswith(")")):
        digits = title.removeprefix(MERGE).partition(" from ")[0] if title.startswith(MERGE) else ""
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else None
