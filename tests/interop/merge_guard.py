"""A merge guard and an on-call bot of today: all they know they read from the names of check runs.

Written after their public behaviour: `crcr/{owner}/{repo}/{workflow}/{job}`, of each name the newest; the level and the
people come from the allowlist; what they do not find does not stop them.
"""

from __future__ import annotations

from typing import NamedTuple

GOOD = {"success", "neutral", "skipped"}


class Seen(NamedTuple):
    """What a check run says of a backend's job."""

    repo: str
    workflow: str
    job: str
    status: str
    conclusion: str | None
    external_id: str


def seen(github, repo, sha):
    """Return the jobs of backends on a commit, by the name of their newest check run."""
    newest = {run.name: run for run in sorted(github.check_runs(repo, sha), key=lambda run: run.id)}
    found = {}
    for name, run in newest.items():
        if name.startswith("crcr/"):
            _, owner, backend, workflow, job = name.split("/", 4)
            found[name] = Seen(
                f"{owner}/{backend}", workflow, job, run.status, run.conclusion, run.external_id
            )
    return found


def objections(github, repo, sha, blocking):
    """Return the check runs because of which a commit is not merged."""
    jobs = seen(github, repo, sha)
    return sorted(
        name for name, job in jobs.items()
        if job.repo in blocking and (job.status != "completed" or job.conclusion not in GOOD)
    )  # fmt: skip


def paged(github, repo, sha, oncalls):
    """Return who is mentioned because a backend's job failed."""
    jobs = seen(github, repo, sha).values()
    failed = {job.repo for job in jobs if job.conclusion in {"failure", "timed_out"}}
    return sorted(person for backend in failed for person in oncalls.get(backend, ()))
