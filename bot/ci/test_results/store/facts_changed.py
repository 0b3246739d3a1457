"""What follows from records and reports that come after a job's tests were stored, or without any."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.test_results.job_tables import JOB_KEY, test_job
from bot.ci.test_results.store import crashed_files, disabled_changed, job_parts, pulls_concerned
from bot.ci.test_results.store.rows import job_key
from bot.ci.test_results.tables import test_part
from bot.db.statements import Statement
from bot.db.transaction import among_given
from bot.ingest.tables import repository_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from bot.db.transaction import Changed, Transaction

PART, JOB, NAME = test_part.c, test_job.c, repository_name.c
KEY = [PART[name] for name in JOB_KEY]
MOST = 1_000
UNDISPATCHED = (  # parts of these runs with tests whose dispatch was unknown
    Statement(
        sa.select(*KEY)
        .where(
            PART.repository_id.in_(
                sa.select(NAME.repository_id).where(NAME.name.in_(sa.bindparam("repos", expanding=True)))
            ),
            PART.run_id.in_(sa.bindparam("runs", expanding=True)),
            sa.exists().where(
                *(JOB[name] == PART[name] for name in JOB_KEY),
                JOB.backend.is_not(None),
                JOB.dispatch_id.is_(None),
            ),
        )
        .distinct()
        .limit(MOST)
    )
)
RUN_ID = re.compile("[0-9]{1,18}")  # GitHub's


async def note(tx: Transaction, changed: Changed) -> None:
    """Before a commit: have tests of jobs made again of which more is known now."""
    await pulls_concerned.note(tx, changed)
    disabled_changed.note(tx, changed)
    await _of_jobs(tx, changed.get("workflow_job", ()))
    await _of_reports(tx, changed.get("oot_workflow_job", ()))
    for run in changed.get("workflow_run", ()):
        if run["status"] == "completed" and run["conclusion"] in crashed_files.CONCLUSIONS:
            key = f"{run['repository_id']}/{run['id']}/{run['run_attempt']}"
            tx.enqueue(crashed_files.TASK, key, delay=crashed_files.AFTER)


async def _of_jobs(tx: Transaction, jobs: Iterable[Mapping[str, Any]]) -> None:
    """A job that ended after its reports were read."""
    keys = sorted(
        {
            (job["repository_id"], job["run_id"], job["run_attempt"], job["id"])
            for job in jobs
            if job["status"] == "completed" and job["run_id"] and job["run_attempt"]
        }
    )
    if keys:  # a statement is not even made for the many transactions that change no job
        await _request(tx, _of_keys(sqlite=tx.sqlite), {"wanted": tx.keys(keys)})


@functools.cache
def _of_keys(*, sqlite: bool) -> Statement:
    """Return the query for the jobs of these keys whose reports are stored."""
    return Statement(sa.select(*KEY).where(among_given(KEY, "wanted", sqlite=sqlite)).distinct().limit(MOST))


async def _of_reports(tx: Transaction, reports: Iterable[Mapping[str, Any]]) -> None:
    """A backend that says which dispatch a run is of, after that run's tests were stored."""
    told = [one for one in reports if one.get("dispatch_id") and RUN_ID.fullmatch(one["run_id"])]
    if told:
        repos = sorted({one["downstream_repo"].casefold() for one in told})
        await _request(
            tx, UNDISPATCHED, {"repos": repos, "runs": sorted({int(one["run_id"]) for one in told})}
        )


async def _request(tx: Transaction, query: Statement, parameters: Any = None) -> None:
    for row in await tx.run(query, parameters):
        job_parts.request(tx, job_key(*row))
