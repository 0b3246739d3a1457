"""GET /{owner}/{repo}/run/{id}: a run, what it was started for, its attempts, and when their jobs waited and ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.core.escaping import web_url
from bot.core.json_fields import FULL_NAME, Kind, read_member
from bot.evidence.collect import fetches
from bot.ingest import record_store, repositories
from bot.jobs import collection, commit_cells, grid_columns, rows, runs
from bot.jobs.cells import CONCLUSIONS, STATES
from bot.oot.results import jobs
from bot.oot.verdict.view import anchor_of
from bot.pages import job_reads
from bot.pages.job_reports import selected_tests, skipped_documents
from bot.pages.jobs import artifact_pages
from bot.pages.logs import sections as logs
from bot.pages.tests import views as tests
from bot.pages.usage import sections as usage
from bot.web import access
from bot.web import parameters as declare
from bot.web.blocks import Block, RunSubject, order_blocks
from bot.web.charts import TimelineBar, TimelineStep, timeline
from bot.web.parameters import REPO
from bot.web.search import Hit
from bot.web.view import Page, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.collect.tables import ListingRow
    from bot.ingest.record_rows import WorkflowJobRow, WorkflowRunRow
    from bot.jobs.rows import TimedJobRow
    from bot.jobs.tables import CellRow, ColumnRow
    from bot.web.access import Hidden
    from bot.web.blocks import CommitSubject, PullSubject, Tone
    from bot.web.parameters import Query
    from bot.web.search import SearchWords

ELSEWHERE_MOST = 2_000  # of a commit
BARS_SHOWN = 40  # bars
COMMIT_MOST = 2_000  # jobs of a commit that are looked at
STEPS_MOST = 100  # of a job
BAR_TONES: dict[str, Tone] = {
    "success": "good", "failure": "bad", "timed_out": "bad", "startup_failure": "bad", "action_required": "bad",
    "": "wait",
}  # fmt: skip
RUNNING_REFRESH = 30  # seconds until a page on which something runs is reloaded
MOST_JOBS = 1_000
URGENCY = {"bad": 0, "wait": 1, "good": 2, "idle": 3}
RUN_ID = declare.identifier("id", "GitHub's id of the run")


@dataclass(frozen=True, kw_only=True)
class RunOrigin:
    """The pull request or commit that a run tested."""

    upstream: str
    pull: int | None
    title: str  # of the pull request; comes from outside
    sha: str  # of upstream's commit
    backend: str | None  # that reported the run; None: it is upstream's own
    level: int | None = None  # of the backend then

    @property
    def page(self) -> str:
        """Where the results for it are."""
        where = f"/{self.upstream}/pull/{self.pull}?sha={self.sha}" if self.pull else ""
        where = where or f"/{self.upstream}/commit/{self.sha}"
        return f"{where}#{anchor_of(self.backend)}" if self.backend else where


@dataclass(frozen=True, kw_only=True)
class JobElsewhere:
    """The newest attempt of a job of another CI, or of one known from a commit status only."""

    id: int  # its number in cells of the grid: below 0
    workflow: str
    name: str
    status: str
    conclusion: str | None
    attempt: int
    queued_at: int | None
    started_at: int | None
    completed_at: int | None
    url: str | None


@dataclass(frozen=True, kw_only=True)
class RunOnPage:
    """The attempts of a run, newest first, and what they left behind."""

    attempts: list[WorkflowRunRow]
    jobs: list[WorkflowJobRow]
    blocks: list[Block]
    listing: ListingRow | None
    origin: RunOrigin | None


async def find_origin(
    tx: Transaction, repo: str, run_id: int | None, head_sha: str | None, hidden: Hidden
) -> RunOrigin | None:
    """Return what a run was started for, None where that is unknown or may not be shown."""
    reported = await jobs.read_jobs_of_run(tx, repo, str(run_id))
    if reported:
        last = reported[-1]
        upstream, number, sha = last["upstream_repo"], last["pr_number"], last["head_sha"]
        backend, level = last["downstream_repo"], last["downstream_repo_level"]
    else:
        upstream, sha, backend, level = repo, head_sha, None, None
        numbers = await record_store.read_deciding_pulls(tx, upstream, [sha] if sha else [])
        number = next(iter(numbers.get(sha or "", ())), None)
    if not upstream or not FULL_NAME.fullmatch(upstream) or hidden.has(upstream):
        return None
    if not sha or not (number or backend):
        return None
    record = await record_store.read_pull(tx, upstream, number) if number else None
    title = (record["title"] if record else None) or ""
    return RunOrigin(upstream=upstream, pull=number, title=title, sha=sha, backend=backend, level=level)


async def find_jobs_elsewhere(tx: Transaction, repo: str, sha: str) -> list[JobElsewhere]:
    """Return the jobs of other CIs on a commit; a commit status of a known job does not count as one."""
    elsewhere = []
    for identifier in sorted(await repositories.read_ids(tx, repo)):
        cells = await rows.cells_elsewhere(tx, identifier, sha, limit=ELSEWHERE_MOST)
        if not cells:
            continue
        columns = await rows.columns(tx, identifier, {row["column_id"] for row in cells})
        if contexts := grid_columns.contexts_of(columns.values()):
            columns |= await rows.columns_shown_as(tx, identifier, contexts)
        present = await rows.columns_on(tx, identifier, sha)
        statuses = grid_columns.find_duplicates(columns)
        covered = {
            key
            for key in statuses.all
            if statuses.alone.get(key) in present or present & statuses.several.get(key, frozenset())
        }
        newest: dict[tuple[int, int, int], CellRow] = {}
        for column, row, twin in commit_cells.place_jobs(cells, commit_cells.describe_runs([]), shards=False):
            place = (column, row["shard"], twin)
            if column not in covered and (
                place not in newest or _newest_attempt(row) > _newest_attempt(newest[place])
            ):
                newest[place] = row
        elsewhere += [_job_elsewhere(row, columns[row["column_id"]]) for row in newest.values()]
    return sorted(elsewhere, key=lambda job: (job.workflow, job.name, job.id))


async def draw_run(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return the jobs of a run's newest attempt, with their steps."""
    jobs = await runs.jobs_of_run(tx, subject.repository_id, subject.run_id)
    newest = max((row["run_attempt"] or 1 for row in jobs), default=1)
    run = await runs.find_attempt(tx, subject.run_id, newest)
    over = run is not None and run["status"] == "completed"  # what is unfinished then stays so for ever
    shown = [row for row in jobs if (row["run_attempt"] or 1) == newest and (row["conclusion"] or not over)]
    bars = [_bar_of_record(row, subject.repo) for row in shown]
    return _bars_block(bars, tx.now)


async def draw_commit(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Return the jobs of a commit."""
    return await _draw_jobs(tx, subject.repo, subject.sha)


async def draw_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return the jobs of the head on the page."""
    return await _draw_jobs(tx, subject.repo, subject.head_sha) if subject.head_sha else []


async def read_run(query: Query) -> RunOnPage:
    """Read a run; raises Rejected 404."""
    tx = query.tx
    owners = await job_reads.visible_ids_of(query, query[REPO])
    attempts = await job_reads.shown_attempts(tx, owners, query[RUN_ID])
    newest = attempts[0]
    subject = RunSubject(
        repo=newest["repo"],
        repository_id=newest["repository_id"],
        run_id=newest["id"],
        github=web_url(query.settings.github_api_url),
    )
    return RunOnPage(
        attempts=attempts,
        jobs=await runs.jobs_of_run(tx, newest["repository_id"], newest["id"]),
        blocks=order_blocks(
            await artifact_pages.run_artifacts(tx, subject),
            await draw_run(tx, subject),
            await logs.run_section(tx, subject),
            await tests.run_blocks(tx, subject),
            await usage.show_run(tx, subject),
            await skipped_documents.show_run_documents(tx, subject),
            await selected_tests.show_run(tx, subject),
        ),
        listing=await fetches.find_listing(tx, newest),
        origin=await find_origin(tx, newest["repo"], newest["id"], newest["head_sha"], query.hidden),
    )


def show_run(page: RunOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    newest = page.attempts[0]
    return {
        "run": newest,
        "attempts": [(attempt, _by_urgency(page.jobs, attempt["run_attempt"])) for attempt in page.attempts],
        "most": MOST_JOBS,
        "tone_of": job_reads.conclusion_tone,
        "seconds": job_reads.seconds_between,
        "unstarted": collection.not_started,
        "listing": page.listing,
        "origin": page.origin,
        "blocks": page.blocks,
        "json_url": f"/api/ci/artifacts/{newest['repo']}?run_id={newest['id']}",
    }


def _run_refresh(page: RunOnPage) -> int:
    return RUNNING_REFRESH if page.attempts[0]["status"] not in ("completed", None) else 0


RUN_VIEW = View(
    read=read_run,
    parameters=(REPO, RUN_ID),
    page=Page(
        path=r"/{owner}/{repo}/run/{id:\d+}", template="run.html", values=show_run, refresh=_run_refresh
    ),
)


async def find_run_hits(query: Query, words: SearchWords, limit: int) -> list[Hit]:
    """Return the run or the job that has a number."""
    if words.number is None:
        return []
    private = access.reads_private(query.request)
    shown = await record_store.read_visible_repositories(query.tx, query.hidden, private=private)
    job = await runs.find_job(query.tx, shown.keys(), words.job or words.number)
    hits = []
    if job and job["repository_id"] in shown:
        repo = shown[job["repository_id"]]
        hits.append(
            Hit(kind="job", title=job["name"] or "", path=f"/{repo}/job/{job['id']}", repo=repo, exact=True)
        )
    attempts = await runs.attempts_of_run(query.tx, shown.keys(), words.number) if not words.job else []
    for run in attempts[:1]:
        repo = shown[run["repository_id"]]
        title = f"{run['name'] or ''} #{run['run_number'] or ''}"
        hits.append(Hit(kind="run", title=title, path=f"/{repo}/run/{run['id']}", repo=repo, exact=True))
    return hits[:limit]


def _newest_attempt(row: CellRow) -> tuple[int, int]:
    return row["attempt"], row["queued_at"] or 0


def _job_elsewhere(row: CellRow, column: ColumnRow) -> JobElsewhere:
    shard = f" ({row['shard']}/{row['shards']})" if row["shards"] else ""
    return JobElsewhere(
        id=row["job_id"],
        workflow=column["workflow"],
        name=f"{column['job']}{shard}",
        status=STATES[row["state"]],
        conclusion=CONCLUSIONS[row["conclusion"]] or None,
        attempt=row["attempt"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        url=row["url"],
    )


async def _draw_jobs(tx: Transaction, repo: str, sha: str) -> list[Block]:
    jobs = await rows.timed_jobs(tx, await repositories.read_ids(tx, repo), sha, limit=COMMIT_MOST)
    return _bars_block([_bar_of_cell(row, repo) for row in jobs], tx.now)


def _bars_block(bars: Sequence[TimelineBar], now: int) -> list[Block]:
    """Draw the jobs that ended last: those that the result waited for."""
    last = sorted(bars, key=lambda bar: (-(bar.ended_at or now), bar.name))[:BARS_SHOWN]
    drawn = timeline(last, now=now)
    if drawn is None:
        return []
    more = f" (the {BARS_SHOWN} of {len(bars)} that ended last)" if len(bars) > BARS_SHOWN else ""
    return [Block(heading=f"When jobs waited and ran{more}", lines=(), last=True, timeline=drawn)]


def _bar_of_cell(row: TimedJobRow, repo: str) -> TimelineBar:
    name = f"{row['workflow']} / {row['job']}" if row["workflow"] else row["job"]
    word = CONCLUSIONS[row["conclusion"]]
    return TimelineBar(
        name=f"{name} {row['shard']}/{row['shards']}" if row["shards"] else name,
        url=row["url"] if row["other_id"] else f"/{repo}/job/{row['job_id']}",
        tone=BAR_TONES.get(word, "idle"),
        queued_at=None if row["held"] else row["queued_at"],
        started_at=row["started_at"] if row["state"] > 1 else None,  # GitHub gives a time to what only waits
        ended_at=row["completed_at"] if word else None,
    )


def _bar_of_record(row: WorkflowJobRow, repo: str) -> TimelineBar:
    conclusion = row["conclusion"] or ""
    return TimelineBar(
        name=row["name"] or "job",
        url=f"/{repo}/job/{row['id']}",
        tone=BAR_TONES.get(conclusion, "idle"),
        queued_at=row["created_at"],
        started_at=row["started_at"] if row["status"] in {"in_progress", "completed"} else None,
        ended_at=row["completed_at"] if conclusion else None,
        steps=_steps(row),
    )


def _steps(row: WorkflowJobRow) -> tuple[TimelineStep, ...]:
    """Return the steps that ended, reading GitHub's answer field by field."""
    steps = []
    for step in row["steps"][:STEPS_MOST] if isinstance(row["steps"], list) else []:
        started, ended = (
            read_member(step, ("started_at",), Kind.TIME),
            read_member(step, ("completed_at",), Kind.TIME),
        )
        if started is not None and ended is not None:
            failed = read_member(step, ("conclusion",), Kind.TEXT) == "failure"
            name = read_member(step, ("name",), Kind.TEXT) or ""
            steps.append(TimelineStep(name=name, failed=failed, started_at=started, ended_at=ended))
    return tuple(steps)


def _by_urgency(jobs: list[WorkflowJobRow], attempt: int) -> list[WorkflowJobRow]:
    chosen = [job for job in jobs if (job["run_attempt"] or 1) == attempt]
    return sorted(
        chosen, key=lambda job: (URGENCY[job_reads.conclusion_tone(job["conclusion"])], job["name"] or "")
    )
