"""What is shown of results: when a job ran and its page, and no name of a private backend."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from bot.ingest import repositories
from bot.oot.allowlist.allowlist import parse_github_source
from bot.oot.results.tables import (
    JobDurations,
    JobFlags,
    JobOutcome,
    JobReportedSpan,
    JobSpan,
    oot_dispatch,
    oot_workflow_job,
)
from bot.web.access import Private

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.db.transaction import Transaction
    from bot.oot.results.tables import JobRow

SKEW = 60_000  # milliseconds that a backend's clock may differ from ours
LONGEST = 35 * 86_400_000  # milliseconds: no report is accepted so long after its dispatch
RUN_PAGE = re.compile(r"(https?://[^/?#]+/[^/?#]+/[^/?#]+/actions/runs/([0-9]+))(?:/attempts/[0-9]+)?/?")
R = TypeVar("R", bound="Mapping[str, object]")
DIGITS = 3  # bytes of a digest, which tells two jobs apart
NOT_SHOWN = ("failed_tests_json", "artifact_url", "environment", "triage_verdict")  # they can hold any name


class JobTimed(JobOutcome, JobSpan, JobReportedSpan, JobDurations, JobFlags):
    """The columns that say when a job ran, and how long."""


class ShownTimes(NamedTuple):
    """When a job began and ended, epoch milliseconds."""

    started_at: int | None
    completed_at: int | None


async def with_known_spelling(store: Store, settings: Settings) -> Settings:
    """Return the settings with upstream's names spelled as our rows spell them, if there are any.

    Otherwise a different case in the settings, or a rename that changes only the case, would leave earlier results and
    their check runs with another upstream.
    """
    async with store.read() as tx:
        dispatched = await repositories.read_distinct_upstreams(tx, oot_dispatch)
        reported = await repositories.read_distinct_upstreams(tx, oot_workflow_job)
    # dispatches take precedence over what a relay reported, the settings come last
    known = {
        name.casefold(): name
        for names in (settings.upstream_repo, sorted(reported), sorted(dispatched))
        for name in names
    }
    chosen = dict.fromkeys(known[name.casefold()] for name in settings.upstream_repo)
    return replace(settings, upstream_repo=tuple(chosen))


async def private_repositories(tx: Transaction, settings: Settings, repos: Collection[str]) -> Private:
    """Return the private repositories according to their records, by every name they ever had.

    Only those asked for, upstream, the allowlist's own and those our rows are about: there may be any number of others.
    Upstream and the allowlist's own are private until GitHub has said otherwise.
    """
    source = parse_github_source(settings.allowlist)
    named = {*settings.upstream_repo, *([source.repo] if source else [])}
    wanted = {*repos, *named, *await repositories.read_distinct_upstreams(tx, oot_dispatch, oot_workflow_job)}
    ids = await repositories.read_private_ids(tx, wanted)
    names = await repositories.read_names_of_ids(
        tx, ids
    ) | await repositories.read_names_of_unknown_visibility(tx, named)
    return Private(names=frozenset(names), ids=frozenset(ids))


def are_times_possible(reported: ShownTimes, *, now: int, dispatched_at: int | None) -> bool:
    """Whether reported times are possible: in order, not in the future, not before the dispatch."""
    known = [at for at in reported if at is not None]
    first = dispatched_at - SKEW if dispatched_at is not None else now - LONGEST
    return known == sorted(known) and all(first <= at <= now + SKEW for at in known)


def job_seconds(job: JobTimed) -> float | None:
    """Return how long a job ran: as measured here, or as its backend says if only it knows both times."""
    measured = job["execution_time"]
    if measured is not None or job["status"] != "completed" or job["reported_started_at"] is None:
        return measured
    began, ended = job_times(job)
    return (ended - began) / 1000 if began is not None and ended is not None else None


def job_times(job: JobTimed) -> ShownTimes:
    """Return when a job began and ended: as reported, or as measured here if the report is odd."""
    measured = ShownTimes(job["started_at"], job["completed_at"])
    if "odd_times" in job["flags"]:
        return measured
    began = job["reported_started_at"] or measured.started_at
    ended = measured.completed_at and (job["reported_completed_at"] or measured.completed_at)
    if began is None or ended is None or began <= ended:
        return ShownTimes(began, ended)
    return ShownTimes(ended, ended) if "no_start" in job["flags"] else measured


def job_page(job: JobRow) -> str | None:
    """Return the address of a job's own page if its run is one of GitHub's and the job's id is known."""
    url, identifier = job["workflow_run_url"], job["check_run_id"] or ""
    run = RUN_PAGE.fullmatch(url or "")
    known = run and run[2] == job["run_id"] and identifier.isascii() and identifier.isdigit()
    return f"{run[1]}/job/{identifier}" if run and known else url


@dataclass(frozen=True, kw_only=True)
class PrivateNames:
    """The backends whose names may not be shown, and what is shown instead."""

    backends: frozenset[str] = frozenset()  # case folded
    key: bytes = b""

    def hides(self, backend: str) -> bool:
        """Whether a backend's names may not be shown."""
        return backend.casefold() in self.backends

    def workflow(self, backend: str, name: str) -> str:
        """Return the name shown for a workflow."""
        return f"workflow {self._digest(backend, name)}"

    def job(self, backend: str, workflow: str, name: str) -> str:
        """Return the name shown for a job."""
        return f"job {self._digest(backend, workflow, name)}"

    def of_row(self, row: R, backend: str) -> R:
        """Return a job's row as it may be shown, with its counts and times; all of it if nothing is hidden."""
        if not self.hides(backend):
            return row
        workflow, name = str(row["workflow_name"]), str(row["job_name"])
        shown: dict[str, object] = {
            "workflow_name": self.workflow(backend, workflow),
            "job_name": self.job(backend, workflow, name),
        }
        shown |= {column: None for column in NOT_SHOWN if column in row}
        if "workflow_run_url" in row:
            shown["workflow_run_url"] = run_page(cast("str | None", row["workflow_run_url"]))
        return cast("R", {**row, **shown})

    def _digest(self, *parts: str) -> str:
        named = "\0".join([parts[0].casefold(), *parts[1:]])
        return hashlib.blake2s(named.encode(), key=self.key, digest_size=DIGITS).hexdigest()


NOTHING_PRIVATE = PrivateNames()


async def read_private_names(tx: Transaction, settings: Settings, backends: Collection[str]) -> PrivateNames:
    """Return which of these backends' repositories are private, as far as their records say."""
    folded = {backend.casefold() for backend in backends}
    private = (await private_repositories(tx, settings, folded)).names & folded if folded else frozenset()
    # guessing a name is no use without the key, which is no other secret's
    key = hashlib.sha256(b"names of private backends\0" + settings.private_key.encode()).digest()
    return PrivateNames(backends=frozenset(private), key=key)


def run_page(url: str | None) -> str | None:
    """Return the address of a run on GitHub, which contains only its id; None for any other address."""
    return url if url and RUN_PAGE.fullmatch(url) else None
