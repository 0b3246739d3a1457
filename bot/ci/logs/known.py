"""Whether a job of a pull request failed as the same job did lately on the default branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.collect import job_names
from bot.ci.collect import rows as collect_rows
from bot.ci.logs.tables import FIRST, ci_log, ci_verdict
from bot.ci.trunk.tables import branch_commit
from bot.ingest.tables import records

if TYPE_CHECKING:
    from bot.ci.logs.rows import VerdictRow
    from bot.db.transaction import Transaction

HEADS = 3  # newest commits of the branch, when the job ended
COMPARED = 500  # failed jobs of theirs


class Known(NamedTuple):
    """The failure that shows it."""

    branch: str
    sha: str
    job_id: int


async def elsewhere(tx: Transaction, verdict: VerdictRow, *, name: str, workflow: str | None) -> Known | None:
    """Return the newest job of that name, on whatever shard, with the same rule and captures on the branch."""
    branch = (await collect_rows.repository(tx, verdict["repository_id"]))["default_branch"]
    if verdict["trusted"] or verdict["rule"] is None or branch is None:
        return None
    commit, job = branch_commit.c, records["workflow_job"].c
    heads = sa.select(commit.sha).where(
        commit.repository_id == verdict["repository_id"],
        commit.branch == branch,
        commit.at <= verdict["at"],
        sa.not_(commit.gone),
    )
    shas = (await tx.run(heads.order_by(commit.at.desc(), commit.sha).limit(HEADS))).scalars().all()
    of_log = sa.and_(
        ci_verdict.c.repository_id == ci_log.c.repository_id, ci_verdict.c.job_id == ci_log.c.job_id
    )
    of_job = sa.and_(job.repository_id == ci_log.c.repository_id, job.id == ci_log.c.job_id)
    query = (
        sa.select(ci_log.c.head_sha, ci_log.c.job_id, job.name, job.workflow_name, ci_verdict.c.captures)
        .select_from(ci_log.join(ci_verdict, sa.and_(of_log, FIRST)).join(records["workflow_job"], of_job))
        .where(
            ci_log.c.repository_id == verdict["repository_id"],
            ci_log.c.head_sha.in_(shas),
            ci_log.c.trusted,
            ci_verdict.c.rule == verdict["rule"],
        )
        .order_by(ci_verdict.c.at.desc(), ci_log.c.job_id.desc())
        .limit(COMPARED)
    )
    wanted = job_names.parse(workflow, name).shard_free
    for row in await tx.rows(query):
        same = job_names.parse(row["workflow_name"], row["name"] or "").shard_free == wanted
        if same and row["captures"] == verdict["captures"]:
            return Known(branch, row["head_sha"], row["job_id"])
    return None
