"""Buildkite: its builds, jobs and agents in the normal form, and calls to its REST API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.context import Resource
from bot.core.errors import NotYet, RetryLater
from bot.core.json_fields import Kind, Unreadable, clean, read_member
from bot.github.client import Location
from bot.github.download import Downloads, Unanswered
from bot.providers import tables
from bot.providers.feature import AGENT_STATES, BUILDKITE, normalize_project
from bot.providers.tables import PROVIDER_JOB, PROVIDER_RUN

if TYPE_CHECKING:
    from pathlib import Path

    from bot.context import Context
    from bot.github.download import Download
    from bot.ingest.tables import Record
    from bot.providers.feature import Provider
    from bot.providers.tables import JsonObject, ProviderAgentRow

QUEUED, RUNNING, COMPLETED = "queued", "in_progress", "completed"
# not for an agent
WAITING = frozenset(("pending", "waiting", "blocked", "limiting", "limited", "platform_limited"))
JOB_STATES: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys((*WAITING, "scheduled", "assigned", "accepted"), (QUEUED, None)),
    **dict.fromkeys(("running", "canceling", "timing_out"), (RUNNING, None)),
    "passed": (COMPLETED, "success"),
    "failed": (COMPLETED, "failure"),
    **dict.fromkeys(("timed_out", "expired"), (COMPLETED, "timed_out")),
    "canceled": (COMPLETED, "cancelled"),
    **dict.fromkeys(
        ("skipped", "broken", "waiting_failed", "blocked_failed", "unblocked_failed", "not_run"),
        (COMPLETED, "skipped"),
    ),
}
BUILD_STATES: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(("creating", "scheduled", "blocked", "waiting"), (QUEUED, None)),
    **dict.fromkeys(("running", "failing", "canceling"), (RUNNING, None)),
    "passed": (COMPLETED, "success"),
    "failed": (COMPLETED, "failure"),
    "canceled": (COMPLETED, "cancelled"),
    **dict.fromkeys(("skipped", "not_run", "waiting_failed"), (COMPLETED, "skipped")),
}
BUILD_ADDRESS = re.compile(r"https?://[^/?#]+/([A-Za-z0-9._-]{1,100})/")  # of a build: its organization
OTHER = "other"
NO_AGENT = "no agent took it"
LOST_EXIT_STATUS = -1  # exit status where the agent was lost
# what ended a job that was not its own command; see `signal_reason` of Buildkite's jobs
INFRA = {
    "agent_stop": "its agent was stopped",
    "process_run_error": "its agent could not start it",
    "stack_error": "its agent failed",
    "agent_refused": "its agent refused it",
    "agent_incompatible": "its agent cannot run it",
    "signature_rejected": "its agent rejected its signature",
}
SCRIPT = "script"  # type of the jobs that run a command; others wait, or start other builds
CONNECTED, LOST = "connected", "lost"
DEFAULT_QUEUE = "default"
TAGS_MOST = 50
AGENT_ADDRESS = re.compile(r"https?://[^/?#]+/(?:v2/)?organizations/([A-Za-z0-9._-]{1,100})/agents/")
REFUSED, LIMITED = frozenset({401, 403}), 429
REFUSED_PAUSE, LIMITED_PAUSE = 3_600.0, 60.0  # seconds; a limit is one of requests in a minute


class TokenRefused(RetryLater):
    """Buildkite does not accept the API token, or it may not read what was asked for."""


class _Pause(NamedTuple):
    until: int  # epoch milliseconds
    reason: str


def make_project(address: object, slug: object) -> str:
    """Return `organization/pipeline`, from the first part of a build's address and the pipeline's slug.

    Raises Unreadable where these do not say.
    """
    match = BUILD_ADDRESS.match(address) if isinstance(address, str) else None
    if match is None or not isinstance(slug, str) or not slug:
        raise Unreadable("build.web_url or pipeline.slug is missing or malformed")
    return normalize_project(BUILDKITE, clean(f"{match[1]}/{slug}")[: tables.ID_MOST])


def read_job(data: JsonObject, start: JsonObject) -> Record | None:
    """Return a job, None for steps that run no command; `start` is what every record begins with."""
    if tables.read_text(data, "job", "type") != SCRIPT:
        return None
    job: JsonObject = data["job"]
    state = tables.read_text(job, "state", most=tables.WORD_MOST) or ""
    exit_status = tables.read_number(job, "exit_status")
    status, conclusion = _job_state(
        state, exit_status, ended=tables.read_time(job, "finished_at") is not None
    )
    soft = tables.read_flag(job, "soft_failed")
    if conclusion == "failure" and soft:
        conclusion = "neutral"
    index, total = (
        tables.read_number(job, "parallel_group_index"),
        tables.read_number(job, "parallel_group_total"),
    )
    sharded = index is not None and total is not None and 0 <= index < total <= tables.ATTEMPTS_MOST
    retries = min(max(tables.read_number(job, "retries_count") or 0, 0), tables.ATTEMPTS_MOST)
    values = _common(data, start) | {
        "job_id": tables.read_id(job, "id"),
        "pipeline_id": tables.read_text(data, "pipeline", "id", most=tables.ID_MOST),
        "workflow_id": tables.read_text(data, "build", "id", most=tables.ID_MOST),
        "workflow_name": tables.read_text(data, "pipeline", "slug"),
        "job_name": _job_name(job),
        "number": tables.read_number(data, "build", "number"),
        "attempt": retries + 1,
        "shard": index + 1 if sharded and index is not None else None,
        "shards": total if sharded else None,
        "status": status,
        "conclusion": conclusion,
        "raw_state": state or None,
        "exit_status": exit_status,
        "soft_failed": soft,
        "retried_in_job_id": tables.read_text(job, "retried_in_job_id", most=tables.ID_MOST),
        "runner": _asked_runner(job),
        **_failure(job, state, exit_status, conclusion),
        "created_at": tables.read_time(job, "created_at"),
        "runnable_at": tables.read_time(job, "runnable_at"),
        "started_at": tables.read_time(job, "started_at"),
        "completed_at": tables.read_time(job, "finished_at"),
        "url": tables.read_url(job, "web_url"),
        "log_url": tables.read_url(job, "log_url"),
    }
    return tables.make_record(PROVIDER_JOB, values)


def read_build(data: JsonObject, start: JsonObject) -> Record:
    """Return a build. A blocked build has not ended, whatever its state: it may continue."""
    state = tables.read_text(data, "build", "state", most=tables.WORD_MOST) or ""
    ended = tables.read_time(data, "build", "finished_at")
    status, conclusion = BUILD_STATES.get(state, (COMPLETED, OTHER) if ended else (RUNNING, None))
    if tables.read_flag(data, "build", "blocked"):
        status, conclusion = QUEUED, None
    values = _common(data, start) | {
        "run_id": tables.read_id(data, "build", "id"),
        "pipeline_id": tables.read_text(data, "pipeline", "id", most=tables.ID_MOST),
        "name": tables.read_text(data, "pipeline", "slug"),
        "number": tables.read_number(data, "build", "number"),
        "source": tables.read_text(data, "build", "source", most=tables.WORD_MOST),
        "status": status,
        "conclusion": conclusion,
        "raw_state": state or None,
        "created_at": tables.read_time(data, "build", "created_at"),
        "started_at": tables.read_time(data, "build", "started_at"),
        "completed_at": ended if status == COMPLETED else None,
        "url": tables.read_url(data, "build", "web_url"),
    }
    return tables.make_record(PROVIDER_RUN, values)


def find_organization(*addresses: object) -> str:
    """Return the organization of an agent, read from its addresses at Buildkite; "" if they name none."""
    for address in addresses:
        if isinstance(address, str) and (match := AGENT_ADDRESS.match(address)):
            return match[1].casefold()
    return ""


def read_agent(data: JsonObject, event: str, *, received_at: int) -> ProviderAgentRow:
    """Read an agent from an event."""
    tags = (read_member(data, ("agent", "meta_data"), Kind.TEXTS) or [])[:TAGS_MOST]
    tags = [tag[: tables.ID_MOST] for tag in tags]
    queue = next((tag.partition("=")[2] for tag in tags if tag.startswith("queue=")), "") or DEFAULT_QUEUE
    state = event.partition(".")[2]
    return {
        "organization": find_organization(data["agent"].get("web_url"), data["agent"].get("url")),
        "agent_id": tables.read_id(data, "agent", "id"),
        "name": tables.read_text(data, "agent", "name"),
        "queue": queue,
        "tags": tags,
        "state": state,
        "at": received_at,
        "version": f"{received_at:015d}:{AGENT_STATES.index(state)}",
    }


class BuildkiteApi:
    """Buildkite's REST API as this process uses it: its downloads, and the pause of each token."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._port, self._proxy = context.settings.port, context.settings.proxy
        self._downloads: dict[str, Downloads] = {}  # by the API's address
        self._pauses: dict[str, _Pause] = {}  # by the variable with the token

    def check_pause(self, provider: Provider) -> None:
        """Raise NotYet while a token must pause."""
        pause = self._pauses.get(provider.api_variable)
        if pause and pause.until > (now := self._clock.now()):
            raise NotYet(pause.reason, after=(pause.until - now) / 1000)

    async def fetch(self, provider: Provider, path: str, into: Path, *, most: int) -> Download:
        """Download what a path of the API leads to; raises TokenRefused, or what `Downloads.fetch` does."""
        sent = {"Authorization": f"Bearer {provider.api_token}", "Accept": "text/plain, */*"}
        location = Location(url=provider.api_url + path, headers=sent)
        try:
            return await self._downloads_of(provider.api_url).fetch(location, into, most=most)
        except Unanswered as error:
            if not error.by_api:
                raise
            if error.status == LIMITED:
                self._pause(
                    provider, error.after or LIMITED_PAUSE, "Buildkite limits the API token's requests"
                )
            elif error.status in REFUSED:
                words = f"Buildkite answered {error.status} to the API token in {provider.api_variable}"
                self._pause(provider, REFUSED_PAUSE, words)
                words += f": it has to be valid, with the scopes {' and '.join(provider.api_scopes)}"
                raise TokenRefused(words, after=REFUSED_PAUSE) from error
            raise

    async def close(self) -> None:
        """Close the connections."""
        for download in self._downloads.values():
            await download.close()

    def _pause(self, provider: Provider, seconds: float, reason: str) -> None:
        until = self._clock.now() + round(seconds * 1000)
        self._pauses[provider.api_variable] = _Pause(until, reason)

    def _downloads_of(self, url: str) -> Downloads:
        if url not in self._downloads:
            self._downloads[url] = Downloads(api_url=url, own_port=self._port, proxy=self._proxy)
        return self._downloads[url]


BUILDKITE_API: Resource[BuildkiteApi] = Resource("buildkite_api", BuildkiteApi)


def _common(data: JsonObject, start: JsonObject) -> dict[str, Any]:
    return start | {
        "provider": BUILDKITE,
        "project": make_project(data["build"].get("web_url"), data["pipeline"].get("slug")),
        "head_sha": tables.read_commit(data, "build", "commit"),  # HEAD until the build has begun
        "branch": tables.read_text(data, "build", "branch"),
        "tag": tables.read_text(data, "build", "tag"),
        "pr_number": tables.read_number(data, "build", "pull_request", "id"),
    }


def _job_state(state: str, exit_status: int | None, *, ended: bool) -> tuple[str, str | None]:
    if state == "finished":
        return (COMPLETED, "success" if exit_status == 0 else "failure" if exit_status is not None else OTHER)
    return JOB_STATES.get(state, (COMPLETED, OTHER) if ended else (RUNNING, None))


def _failure(
    job: JsonObject, state: str, exit_status: int | None, conclusion: str | None
) -> dict[str, str | None]:
    """Return why a job failed, and whether that was its own doing."""
    reason = tables.read_text(job, "signal_reason", most=tables.WORD_MOST) or ""
    if state == "expired":
        return {"reason": NO_AGENT, "failure_kind": "infra"}
    if conclusion not in {"failure", "neutral"}:
        return {"reason": None, "failure_kind": None}
    if reason in INFRA or exit_status == LOST_EXIT_STATUS:
        return {"reason": INFRA.get(reason, "its agent was lost"), "failure_kind": "infra"}
    words = None if exit_status is None else f"exit status {exit_status}"
    return {"reason": words, "failure_kind": None}


def _job_name(job: JsonObject) -> str:
    """Return a job's name as it is, with its emoji; without one the key of its step, or its command's first word."""
    command = (tables.read_text(job, "command") or "").split()
    return (
        tables.read_text(job, "name") or tables.read_text(job, "step_key") or next(iter(command), "") or "job"
    )


def _asked_runner(job: JsonObject) -> str | None:
    """Return what a job asks of its agent: the rule that names a queue, or else all rules."""
    rules = [rule for rule in read_member(job, ("agent_query_rules",), Kind.TEXTS) or () if rule != "*"]
    queue = next((rule for rule in rules if rule.startswith("queue=")), None)
    return (queue or " ".join(rules))[: tables.ID_MOST] or None
