"""GET /{owner}/{repo}/run/{id}: a run, its attempts, their jobs, what they left behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.collect import job_reads, states
from bot.ci.collect.job_origin import find_origin
from bot.ci.collect.store import fetches, runs
from bot.core.links import web_url
from bot.web import blocks
from bot.web import view_parameters as declare
from bot.web.subjects import RunSubject
from bot.web.view import Page, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.collect.job_origin import Origin
    from bot.ci.collect.tables import ListingRow
    from bot.ingest.rows import WorkflowJobRow, WorkflowRunRow
    from bot.web.asked import Asked
    from bot.web.blocks import Block

RUNNING = 30  # seconds until a page on which something runs is reloaded
MOST_JOBS = 1_000
URGENCY = {"bad": 0, "wait": 1, "good": 2, "idle": 3}


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """The attempts of a run, newest first, and what they left behind."""

    attempts: list[WorkflowRunRow]
    jobs: list[WorkflowJobRow]
    blocks: list[Block]
    listing: ListingRow | None
    origin: Origin | None


RUN = declare.identifier("id", "GitHub's id of the run")


async def read_run(asked: Asked) -> FoundRun:
    """Read a run; raises Rejected 404."""
    tx = asked.tx
    owners = await job_reads.visible_to(asked, asked[REPO])
    attempts = await job_reads.shown_attempts(tx, owners, asked[RUN])
    newest = attempts[0]
    subject = RunSubject(
        repo=newest["repo"],
        repository_id=newest["repository_id"],
        run_id=newest["id"],
        github=web_url(asked.settings.github_api_url),
    )
    return FoundRun(
        attempts=attempts,
        jobs=await runs.jobs_of_run(tx, newest["repository_id"], newest["id"]),
        blocks=await blocks.gather(asked.context.features, "run", tx, subject),
        listing=await fetches.find_listing(tx, newest),
        origin=await find_origin(tx, newest["repo"], newest["id"], newest["head_sha"], asked.hidden),
    )


def show(found: FoundRun) -> dict[str, Any]:
    """Return what the page shows."""
    newest = found.attempts[0]
    return {
        "run": newest,
        "attempts": [(one, _by_urgency(found.jobs, one["run_attempt"])) for one in found.attempts],
        "most": MOST_JOBS,
        "tone_of": job_reads.conclusion_tone,
        "seconds": job_reads.seconds_between,
        "unstarted": states.not_started,
        "listing": found.listing,
        "origin": found.origin,
        "blocks": found.blocks,
        "json_url": f"/api/ci/artifacts/{newest['repo']}?run_id={newest['id']}",
    }


def _by_urgency(jobs: list[WorkflowJobRow], attempt: int) -> list[WorkflowJobRow]:
    chosen = [one for one in jobs if (one["run_attempt"] or 1) == attempt]
    return sorted(
        chosen, key=lambda one: (URGENCY[job_reads.conclusion_tone(one["conclusion"])], one["name"] or "")
    )


def _refresh(found: FoundRun) -> int:
    return RUNNING if found.attempts[0]["status"] not in ("completed", None) else 0


VIEW = View(
    read=read_run,
    parameters=(REPO, RUN),
    page=Page(path=r"/{owner}/{repo}/run/{id:\d+}", template="run.html", values=show, refresh=_refresh),
)
