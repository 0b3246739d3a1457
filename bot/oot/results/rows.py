"""Rows of dispatches, jobs, re-runs, runs, ignores, approvals and commands, as the database has them.

Times are epoch milliseconds, durations seconds; ids of outside CIs are text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from bot.ingest import watched
from bot.oot.allowlist.source import on_github
from bot.oot.results.tables import oot_dispatch, oot_workflow_job
from bot.web.access import Private

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.db.transaction import Transaction


class DispatchRow(TypedDict):
    """One `repository_dispatch` of one delivery to one backend."""

    id: str
    delivery_id: str
    source_guid: str
    upstream_repo: str
    event_type: str
    action: str | None
    pr_number: int | None
    head_sha: str | None
    base_sha: str | None
    base_ref: str | None
    labels: Any
    backend: str
    backend_key: str
    level: int
    device: str | None
    state: str
    attempts: int
    created_at: int
    dispatched_at: int | None
    heard_at: int | None
    token_jti: str
    answers: str | None
    run_id: str | None
    error: str | None


class JobRow(TypedDict):
    """What a backend reported on one job."""

    job_key: str
    dispatch_id: str | None
    status: str
    conclusion: str | None
    downstream_repo: str
    upstream_repo: str
    pr_number: int | None
    head_sha: str | None
    delivery_id: str
    workflow_run_url: str | None
    workflow_name: str
    job_name: str
    check_run_id: str | None
    reporter_check_run_id: str | None
    run_id: str
    run_attempt: int
    queue_time: float | None
    execution_time: float | None
    started_at: int | None
    completed_at: int | None
    total_tests: int | None
    passed_tests: int | None
    failed_tests: int | None
    skipped_tests: int | None
    failed_tests_json: Any
    artifact_url: str | None
    environment: Any
    reported_started_at: int | None
    reported_completed_at: int | None
    triage_verdict: Any
    downstream_repo_level: int
    event_type: str
    source: str
    flags: Any
    received_at: int
    updated_at: int


class RerunRow(TypedDict):
    """A run of a backend that is to be run again."""

    dispatch_id: str
    run_id: str
    from_attempt: int
    scope: str
    state: str
    cause: str
    created_at: int


class SilentRerunRow(RerunRow):
    """A re-run with what its dispatch was about."""

    upstream_repo: str
    pr_number: int | None
    backend: str


class RunRow(TypedDict):
    """What asking GitHub for one attempt of a backend's run found when there is no run to record."""

    backend_key: str
    run_id: str
    run_attempt: int
    status: str
    checked_at: int


class RunStatusRow(TypedDict):
    """What is known from GitHub about one attempt of a backend's run."""

    backend_key: str
    run_id: str
    run_attempt: int
    status: str  # GitHub's, or missing | unconfirmed | unreadable
    conclusion: str | None
    event: str | None  # that started the run


class IgnoreRow(TypedDict):
    """A backend that counts as passed on one head."""

    upstream_repo: str
    pr_number: int
    head_sha: str
    base_ref: str | None
    backend_key: str
    login: str
    reason: str
    created_at: int


class ApprovalRow(TypedDict):
    """A head that backends with a policy may run."""

    upstream_repo: str
    pr_number: int
    head_sha: str
    login: str
    created_at: int


class CommandRow(TypedDict):
    """A command in a comment."""

    upstream_repo: str
    comment_id: int
    position: int
    pr_number: int
    head_sha: str | None
    login: str
    verb: str
    text: str
    state: str
    answer: str
    delivery_id: str
    created_at: int


async def with_known_spelling(store: Store, settings: Settings) -> Settings:
    """Return the settings with upstream's names spelled as our rows spell them, if there are any.

    Otherwise a different case in the settings, or a rename that changes only the case, would leave earlier results and
    their check runs with another upstream.
    """
    async with store.read() as tx:
        dispatched = await watched.of_upstreams(tx, oot_dispatch)
        reported = await watched.of_upstreams(tx, oot_workflow_job)
    # dispatches take precedence over what a relay reported, the settings come last
    known = {
        name.casefold(): name
        for names in (settings.upstream_repo, sorted(reported), sorted(dispatched))
        for name in names
    }
    chosen = dict.fromkeys(known[name.casefold()] for name in settings.upstream_repo)
    return replace(settings, upstream_repo=tuple(chosen))


async def private(tx: Transaction, settings: Settings, asked: Collection[str]) -> Private:
    """Return which repositories are private according to their records, by every name they ever had.

    Only those asked for, upstream, the allowlist's own and those our rows are about: there may be any number of others.
    Upstream and the allowlist's own are private until somebody has said otherwise.
    """
    source = on_github(settings.allowlist)
    named = {*settings.upstream_repo, *([source.repo] if source else [])}
    wanted = {*asked, *named, *await watched.of_upstreams(tx, oot_dispatch, oot_workflow_job)}
    ids = await watched.private_ids(tx, wanted)
    names = await watched.of_ids(tx, ids) | await watched.of_unknown_visibility(tx, named)
    return Private(names=frozenset(names), ids=frozenset(ids))
