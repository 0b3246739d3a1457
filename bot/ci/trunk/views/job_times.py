"""When the jobs of a commit or a run waited and ran, for its page: what a full result waited for is plain to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.store import runs
from bot.ci.trunk.cells import CONCLUSIONS
from bot.ci.trunk.store import rows
from bot.core.json_fields import Kind, read_member
from bot.ingest import watched
from bot.web.blocks import Block
from bot.web.timeline import Bar, Step, timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.store.rows import TimedJobRow
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowJobRow
    from bot.web.blocks import Tone
    from bot.web.subjects import CommitSubject, PullSubject, RunSubject

SHOWN = 40  # bars
COMMIT_MOST = 2_000  # jobs of a commit that are looked at
STEPS_MOST = 100  # of a job
TONES: dict[str, Tone] = {
    "success": "good", "failure": "bad", "timed_out": "bad", "startup_failure": "bad", "action_required": "bad",
    "": "wait",
}  # fmt: skip


async def draw_run(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return the jobs of a run's newest attempt, with their steps."""
    found = await runs.jobs_of_run(tx, subject.repository_id, subject.run_id)
    newest = max((row["run_attempt"] or 1 for row in found), default=1)
    run = await runs.find_attempt(tx, subject.run_id, newest)
    over = run is not None and run["status"] == "completed"  # what is unfinished then stays so for ever
    shown = [row for row in found if (row["run_attempt"] or 1) == newest and (row["conclusion"] or not over)]
    bars = [_bar_of_record(row, subject.repo) for row in shown]
    return _block(bars, tx.now)


async def draw_commit(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Return the jobs of a commit."""
    return await _draw_jobs(tx, subject.repo, subject.sha)


async def draw_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return the jobs of the shown head."""
    return await _draw_jobs(tx, subject.repo, subject.head_sha) if subject.head_sha else []


async def _draw_jobs(tx: Transaction, repo: str, sha: str) -> list[Block]:
    found = await rows.timed_jobs(tx, await watched.ids(tx, repo), sha, limit=COMMIT_MOST)
    return _block([_bar_of_cell(row, repo) for row in found], tx.now)


def _block(bars: Sequence[Bar], now: int) -> list[Block]:
    """Return the bars that ended last: those that the others did not have to wait for."""
    last = sorted(bars, key=lambda bar: (-(bar.ended_at or now), bar.name))[:SHOWN]
    drawn = timeline(last, now=now)
    if drawn is None:
        return []
    more = f" (the {SHOWN} of {len(bars)} that ended last)" if len(bars) > SHOWN else ""
    return [Block(heading=f"When jobs waited and ran{more}", lines=(), last=True, timeline=drawn)]


def _bar_of_cell(row: TimedJobRow, repo: str) -> Bar:
    name = f"{row['workflow']} / {row['job']}" if row["workflow"] else row["job"]
    word = CONCLUSIONS[row["conclusion"]]
    return Bar(
        name=f"{name} {row['shard']}/{row['shards']}" if row["shards"] else name,
        url=row["url"] if row["other_id"] else f"/{repo}/job/{row['job_id']}",
        tone=TONES.get(word, "idle"),
        queued_at=None if row["held"] else row["queued_at"],
        started_at=row["started_at"] if row["state"] > 1 else None,  # GitHub gives a time to what only waits
        ended_at=row["completed_at"] if word else None,
    )


def _bar_of_record(row: WorkflowJobRow, repo: str) -> Bar:
    conclusion = row["conclusion"] or ""
    return Bar(
        name=row["name"] or "job",
        url=f"/{repo}/job/{row['id']}",
        tone=TONES.get(conclusion, "idle"),
        queued_at=row["created_at"],
        started_at=row["started_at"] if row["status"] in {"in_progress", "completed"} else None,
        ended_at=row["completed_at"] if conclusion else None,
        steps=_steps(row),
    )


def _steps(row: WorkflowJobRow) -> tuple[Step, ...]:
    """Return the steps that ended; what GitHub sent is read field by field."""
    found = []
    for one in row["steps"][:STEPS_MOST] if isinstance(row["steps"], list) else []:
        started, ended = (
            read_member(one, ("started_at",), Kind.TIME),
            read_member(one, ("completed_at",), Kind.TIME),
        )
        if started is not None and ended is not None:
            failed = read_member(one, ("conclusion",), Kind.TEXT) == "failure"
            name = read_member(one, ("name",), Kind.TEXT) or ""
            found.append(Step(name=name, failed=failed, started_at=started, ended_at=ended))
    return tuple(found)
