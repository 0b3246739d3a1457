"""provider_reports: fetches the reports of tests that a job of Buildkite left. Key: repository, project, id of the job.

They are artifacts of the job whose paths match a glob of the settings, files in JUnit's format or archives of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.ci.collect.parse.artifact_kinds import name_matches
from bot.ci.collect.states import State
from bot.ci.collect.tasks import fetch_file
from bot.ci.collect.tasks.fetch_file import NotThere
from bot.ci.collect.workspace import WORKSPACE
from bot.ci.trunk.job_numbers import make_number
from bot.core import json_fields
from bot.core.errors import RetryLater
from bot.core.json_fields import Kind, Unreadable, read_member
from bot.github.download import Gone, TooLarge
from bot.providers import provider_file
from bot.providers.buildkite_api import BUILDKITE_API
from bot.providers.settings import BUILDKITE
from bot.providers.wanted_files import IDENTIFIER, find_wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.collect.receiving import Fetched
    from bot.context import Context
    from bot.providers.wanted_files import WantedFiles
    from bot.queue.tasks import Task

LISTED = 100  # artifacts of a job that are looked at: a page of the list
FETCHED = 50  # of these
LIST_MOST = 4 * 1024 * 1024  # bytes of the list
PATH_MOST = 500  # characters


class Report(NamedTuple):
    """An artifact that is a report."""

    id: str
    path: str  # from outside
    size: int | None


async def fetch_reports(context: Context, task: Task) -> None:
    """Fetch a job's reports, if the settings have globs and an API token for its pipeline."""
    async with context.store.read() as tx:
        wanted = await find_wanted(tx, context, task.key)
    if wanted is None or not wanted.provider.junit:
        return
    provider_file.check_turn(context, wanted.provider, wanted.job["repo"])
    later: RetryLater | None = None
    for report in await _list_reports(context, wanted):
        try:
            await _fetch(context, wanted, report)
        except RetryLater as error:  # the others may be there
            later = error
    if later:
        raise later


async def _fetch(context: Context, wanted: WantedFiles, report: Report) -> None:
    fetched = _describe(wanted, report)
    row = await provider_file.begin_try(context, wanted.provider, fetched)
    if row is None:
        return
    place = f"{fetched.repository_id}/{fetched.run_id}/{fetched.run_attempt}"
    file = provider_file.ProviderFile(
        provider=wanted.provider,
        path=f"{wanted.path}/artifacts/{report.id}/download",
        fetched=fetched,
        blob=f"results/{place}/{fetched.object_id}",
        size=report.size,
    )
    try:
        await provider_file.fetch(context, row, file)
    except NotThere:
        await fetch_file.end_fetch(context, row, State.ABSENT, "Buildkite no longer has it")


def _describe(wanted: WantedFiles, report: Report) -> Fetched:
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
            found = json_fields.decode((folder / "list").read_bytes())
        except (Gone, TooLarge, Unreadable):
            return ()
    reports = [report for one in found if (report := _read(one, wanted))] if isinstance(found, list) else []
    return reports[:FETCHED]


def _read(artifact: Any, wanted: WantedFiles) -> Report | None:
    """Return an artifact as a report, None where it is none, or not uploaded as a whole."""
    identifier = read_member(artifact, ("id",), Kind.TEXT) or ""
    path = read_member(artifact, ("path",), Kind.TEXT) or ""
    finished = read_member(artifact, ("state",), Kind.TEXT) == "finished"
    matches = name_matches(path.casefold(), wanted.provider.junit)
    if not (finished and matches and IDENTIFIER.fullmatch(identifier)):
        return None
    return Report(identifier, path[:PATH_MOST], read_member(artifact, ("file_size",), Kind.INT))
