"""Deliveries of workflow_job as a busy repository sends them: each is of another job, three for every job."""

from __future__ import annotations

import itertools
import time

from benchmarks.support.generator import webhook
from benchmarks.support.load import workflow_job

STATES = (b"queued", b"in_progress", b"completed")
NAMED = b'"name": "build", "status": "completed"'
AT_A_TIME, JOBS = 4, 400  # commits whose jobs run at the same time, and jobs of a commit
_first_ids = itertools.count(int(time.time()) * 1_000_000, 1_000_000)


def same_job() -> list[bytes]:
    """One delivery, for what only stores it."""
    return [webhook("workflow_job", workflow_job())]


def jobs(count: int) -> list[bytes]:
    """So many deliveries of jobs that nobody has heard of."""
    body, first = workflow_job(), next(_first_ids)
    return [webhook("workflow_job", _of_job(body, first + n // 3, n % 3)) for n in range(count)]


def jobs_of_commits(count: int) -> list[bytes]:
    """The same of large commits: 400 jobs each, of four commits at a time."""
    body, first, made = workflow_job(), next(_first_ids), []
    for number in range(count):
        turn, place = divmod(number, AT_A_TIME * JOBS * 3)
        commit, job = turn * AT_A_TIME + place % AT_A_TIME, place // AT_A_TIME % JOBS
        name = b'"name": "linux-%d / test (config_%d, %d, 6)"' % (job % 17, job // 6, job % 6 + 1)
        varied = _of_job(body, first + commit * JOBS + job, place // (AT_A_TIME * JOBS))
        varied = varied.replace(b"a" * 40, b"%040x" % commit).replace(b'"name": "build"', name)
        made.append(webhook("workflow_job", varied))
    return made


def _of_job(body: bytes, job: int, state: int) -> bytes:
    named = NAMED.replace(b'"completed"', b'"%s"' % STATES[state])
    return body.replace(b'"workflow_job": {"id": 1,', b'"workflow_job": {"id": %d,' % job).replace(
        NAMED, named
    )
