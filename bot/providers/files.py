"""Files of Buildkite's jobs: logs of those that failed and reports of tests, fetched and stored as GitHub's are."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from bot.core import json_fields, metrics
from bot.core.errors import GiveUp, RetryLater
from bot.core.json_fields import Kind, Unreadable, read_member
from bot.core.text import name_matches
from bot.evidence.collect import fetch_file, fetches
from bot.evidence.collect.fetch_file import NotThere, Wanted
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.evidence.collect.receivers import Fetched, ReportedJob
from bot.github.download import Gone, TooLarge
from bot.jobs import collection, runs
from bot.jobs.collection import FetchState
from bot.jobs.job_cells import make_number
from bot.jobs.settings import CollectSettings
from bot.providers import deliveries, tables
from bot.providers.buildkite import BUILDKITE_API, TokenRefused
from bot.providers.feature import BUILDKITE, providers_of
from bot.providers.tables import is_trusted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bot.context import Context
    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.transaction import BeforeCommit, Changed, Transaction
    from bot.evidence.collect.tables import FetchRow
    from bot.providers.feature import Provider
    from bot.providers.tables import ProviderJobRow
    from bot.queue.tasks import Task

LOG, REPORTS = "provider_log", "provider_reports"  # kinds of tasks
DELAY = 5.0  # seconds until Buildkite usually has all of a job
FAILED = frozenset({"failure", "timed_out"})
IDENTIFIER = re.compile(r"[A-Za-z0-9-]{1,100}")  # of a job or an artifact, as a part of an address
LOG_WAITS = (10.0, 60.0, 600.0)  # seconds between tries while there is none
NO_LOG = "Buildkite has no log of it, or the API token may not see the pipeline"
LISTED = 100  # artifacts of a job that are looked at: a page of the list
FETCHED = 50  # of these
LIST_MOST = 4 * 1024 * 1024  # bytes of the list
PATH_MOST = 500  # characters


class WantedFiles(NamedTuple):
    """A job whose files are wanted, and who has them."""

    job: ProviderJobRow
    provider: Provider
    log: Fetched

    @property
    def path(self) -> str:
        """The job's path in Buildkite's API."""
        organization, _, pipeline = self.job["project"].partition("/")
        of_build = f"/v2/organizations/{organization}/pipelines/{pipeline}/builds/{self.job['number']}"
        return f"{of_build}/jobs/{self.job['job_id']}"


@dataclass(frozen=True, kw_only=True)
class ProviderFile:
    """A file, where it is, and what it is of."""

    provider: Provider
    path: str  # in the API
    fetched: Fetched  # size and digest are filled in afterwards
    blob: str  # the key of its blob, if the parser makes one
    size: int | None = None  # as Buildkite has it


class Report(NamedTuple):
    """An artifact that is a report."""

    id: str
    path: str  # from outside
    size: int | None


def make_observer(settings: Settings, _features: Features) -> BeforeCommit | None:
    """Return the hook that requests the files of jobs that ended; None without an API token."""
    if not any(provider.api_token for provider in providers_of(settings, BUILDKITE)):
        return None

    async def request(tx: Transaction, changed: Changed) -> None:
        for job in cast("Sequence[ProviderJobRow]", changed.get("provider_job", ())):
            provider = _provider_of(settings, job)
            if provider is None or not job["conclusion"] or not job["started_at"]:
                continue
            key = f"{job['repository_id']} {job['project']} {job['job_id']}"
            if job["conclusion"] in FAILED:
                tx.enqueue(LOG, key, delay=DELAY)
            if provider.junit:
                tx.enqueue(REPORTS, key, delay=DELAY)

    return request


async def find_wanted(tx: Transaction, context: Context, key: str) -> WantedFiles | None:
    """Return the job of a task's key, None if its files are not, or no longer, wanted.

    Raises GiveUp for a key of no job.
    """
    repository_id, _, rest = key.partition(" ")
    project, _, job_id = rest.partition(" ")
    if not repository_id.isdigit() or not job_id:
        raise GiveUp(f"{key!r} names no job")
    job = await tables.find_job(tx, int(repository_id), BUILDKITE, project, job_id)
    provider = _provider_of(context.settings, job) if job else None
    if job is None or provider is None:
        return None
    workflow = deliveries.workflow_name(job)
    if await collection.run_refusal(tx, context.settings, job["repo"], workflow=workflow):
        return None
    return WantedFiles(job, provider, await _describe_log(tx, context.settings, job))


def check_turn(context: Context, provider: Provider, repo: str) -> None:
    """Raise NotYet while the parser or the API token must pause."""
    context.resource(WORKSPACE).shares.check(repo.casefold())
    context.resource(BUILDKITE_API).check_pause(provider)


async def begin_try(context: Context, provider: Provider, fetched: Fetched) -> FetchRow | None:
    """Record that a file is wanted, count a try, and return the fetch; None if it is settled. Raises NotYet."""
    names = ("repository_id", "object_id", "run_id", "run_attempt", "job_id")
    kind = "log" if fetched.kind == "log" else "artifact"
    intent: dict[str, Any] = {"kind": kind} | {name: getattr(fetched, name) for name in names}
    async with context.store.transaction() as tx:
        await fetches.want_fetches(tx, [intent])
    check_turn(context, provider, fetched.repo)
    async with context.store.transaction() as tx:
        return await fetches.begin_try(tx, fetched.repository_id, kind, fetched.object_id)


async def fetch_provider_file(context: Context, row: FetchRow, file: ProviderFile) -> None:
    """Fetch, parse and store a file, and settle its state; raises NotThere, or RetryLater to be run again."""

    async def download(into: Path) -> Fetched:
        api = context.resource(BUILDKITE_API)
        try:
            got = await api.fetch(file.provider, file.path, into, most=fetch_file.LARGEST_FILE)
        except Gone as error:
            raise NotThere(404) from error
        await collection.spend_bytes(context, file.fetched.repo, got.size)
        metrics.CI_BYTES.labels(file.fetched.source).inc(got.size)
        return replace(file.fetched, size=got.size, sha256=got.sha256)

    wanted = Wanted(fetched=file.fetched, path="", size=file.size, digest=None, blob=file.blob)
    try:
        await fetch_file.fetch_file(context, row, wanted, download=download)
    except TokenRefused as error:
        due_at = context.clock.now() + round((error.after or 0) * 1000)
        await fetch_file.end_fetch(context, row, FetchState.FORBIDDEN, str(error), due_at=due_at)
        raise


async def fetch_log(context: Context, task: Task) -> None:
    """Fetch a job's log, if the settings have an API token for its pipeline."""
    if collection.log_refusal(context.settings, "failure"):
        return
    async with context.store.read() as tx:
        wanted = await find_wanted(tx, context, task.key)
    row = await begin_try(context, wanted.provider, wanted.log) if wanted else None
    if wanted is None or row is None:
        return
    blob = f"log/{wanted.log.repository_id}/{wanted.log.object_id}"
    file = ProviderFile(
        provider=wanted.provider, path=f"{wanted.path}/log.txt", fetched=wanted.log, blob=blob
    )
    try:
        await fetch_provider_file(context, row, file)
    except NotThere:
        if row["tries"] > len(LOG_WAITS):
            await fetch_file.end_fetch(context, row, FetchState.ABSENT, NO_LOG)
        else:
            await fetch_file.wait_for_next_try(
                context, row, "Buildkite has no log yet", LOG_WAITS[row["tries"] - 1]
            )


async def fetch_reports(context: Context, task: Task) -> None:
    """Fetch a job's reports, if the settings have globs and an API token for its pipeline."""
    async with context.store.read() as tx:
        wanted = await find_wanted(tx, context, task.key)
    if wanted is None or not wanted.provider.junit:
        return
    check_turn(context, wanted.provider, wanted.job["repo"])
    later: RetryLater | None = None
    for report in await _list_reports(context, wanted):
        try:
            await _fetch_job_reports(context, wanted, report)
        except RetryLater as error:  # the others may be there
            later = error
    if later:
        raise later


def _provider_of(settings: Settings, job: ProviderJobRow) -> Provider | None:
    """Return the provider whose API token reads a job's files, if it still maps to the job's repository."""
    fetchable = job["provider"] == BUILDKITE and job["head_sha"] and job["number"] is not None
    if not fetchable or not IDENTIFIER.fullmatch(job["job_id"]):
        return None
    for provider in providers_of(settings, BUILDKITE):
        if (
            provider.api_token
            and provider.projects.get(job["project"], "").casefold() == job["repo"].casefold()
        ):
            return provider
    return None


async def _describe_log(tx: Transaction, settings: Settings, job: ProviderJobRow) -> Fetched:
    facts = await runs.repository_facts(tx, job["repository_id"])
    patterns = settings.of(CollectSettings).ci_trusted_branches
    trusted = is_trusted(job, default_branch=facts.default_branch, patterns=patterns)
    number = make_number(BUILDKITE, job["job_id"])
    told: ReportedJob = {
        "repo": job["repo"],
        "workflow": deliveries.workflow_name(job),
        "name": job["job_name"] or "",
        "conclusion": job["conclusion"],
        "head_sha": job["head_sha"] or "",
        "branch": job["branch"],
        "pull": job["pr_number"],
        "trusted": trusted,
        "began_at": job["started_at"],
        "ended_at": job["completed_at"],
    }
    return Fetched(
        repository_id=job["repository_id"],
        repo=job["repo"],
        source="provider",
        kind="log",
        object_id=number,
        run_id=make_number(BUILDKITE, job["workflow_id"] or job["job_id"]),
        run_attempt=job["attempt"] or 1,
        job_id=number,
        name=told["name"],
        head_sha=told["head_sha"],
        trusted=trusted,
        private=facts.private is not False,
        size=0,
        sha256="",
        failed=job["conclusion"] in FAILED,
        workflow=told["workflow"],
        told=told,
    )


async def _fetch_job_reports(context: Context, wanted: WantedFiles, report: Report) -> None:
    fetched = _describe_report(wanted, report)
    row = await begin_try(context, wanted.provider, fetched)
    if row is None:
        return
    place = f"{fetched.repository_id}/{fetched.run_id}/{fetched.run_attempt}"
    file = ProviderFile(
        provider=wanted.provider,
        path=f"{wanted.path}/artifacts/{report.id}/download",
        fetched=fetched,
        blob=f"results/{place}/{fetched.object_id}",
        size=report.size,
    )
    try:
        await fetch_provider_file(context, row, file)
    except NotThere:
        await fetch_file.end_fetch(context, row, FetchState.ABSENT, "Buildkite no longer has it")


def _describe_report(wanted: WantedFiles, report: Report) -> Fetched:
    number = make_number(BUILDKITE, f"artifact {report.id}")
    return replace(wanted.log, kind="junit", object_id=number, name=report.path)


async def _list_reports(context: Context, wanted: WantedFiles) -> Sequence[Report]:
    """Return the reports among a job's artifacts; raises RetryLater."""
    path = f"{wanted.path}/artifacts?per_page={LISTED}"
    async with context.resource(WORKSPACE).folder() as folder:
        try:
            await context.resource(BUILDKITE_API).fetch(
                wanted.provider, path, folder / "list", most=LIST_MOST
            )
            artifacts = json_fields.decode((folder / "list").read_bytes())
        except (Gone, TooLarge, Unreadable):
            return ()
    reports = (
        [report for artifact in artifacts if (report := _read_artifact(artifact, wanted))]
        if isinstance(artifacts, list)
        else []
    )
    return reports[:FETCHED]


def _read_artifact(artifact: Any, wanted: WantedFiles) -> Report | None:
    """Return an artifact as a report, None where it is none, or not uploaded as a whole."""
    identifier = read_member(artifact, ("id",), Kind.TEXT) or ""
    path = read_member(artifact, ("path",), Kind.TEXT) or ""
    finished = read_member(artifact, ("state",), Kind.TEXT) == "finished"
    matches = name_matches(path.casefold(), wanted.provider.junit)
    if not (finished and matches and IDENTIFIER.fullmatch(identifier)):
        return None
    return Report(identifier, path[:PATH_MOST], read_member(artifact, ("file_size",), Kind.INT))
