"""Typed rows of deliveries, sweeps and common records, and the values handlers read; times are epoch milliseconds."""

from __future__ import annotations

from typing import Any, TypedDict


class DeliveryRow(TypedDict):
    """A stored webhook."""

    id: int
    guid: str
    event: str
    action: str | None
    repo: str | None
    repository_id: int | None
    installation_id: int | None
    app_id: int | None
    source: str
    received_at: int
    state: str
    attempts: int
    due_at: int
    error: str | None
    headers: str | None
    codec: str | None
    body: bytes


class SweepRow(TypedDict):
    """How far a periodic look at GitHub has come."""

    app_id: int
    name: str
    created_at: int
    tried_at: int | None
    reached: int | None
    finished_at: int | None
    found: int


class MissedDeliveryRow(TypedDict):
    """A delivery that GitHub's log holds and we never stored."""

    app_id: int
    guid: str
    log_id: int
    event: str
    repository_id: int | None
    delivered_at: int
    asks: int
    asked_at: int
    lost: bool


class PullRow(TypedDict):
    """A pull request."""

    repository_id: int
    repo: str
    received_at: int
    id: int
    node_id: str | None
    number: int | None
    title: str | None
    body: str | None
    state: str | None
    draft: bool | None
    locked: bool | None
    user_login: str | None
    user_id: int | None
    author_association: str | None
    labels: list[str] | None
    assignees: list[str] | None
    requested_reviewers: list[str] | None
    milestone_title: str | None
    head_sha: str | None
    head_ref: str | None
    head_repo_full_name: str | None
    head_repo_id: int | None
    base_sha: str | None
    base_ref: str | None
    merged: bool | None
    merge_commit_sha: str | None
    merged_by_login: str | None
    comments: int | None
    review_comments: int | None
    commits: int | None
    additions: int | None
    deletions: int | None
    changed_files: int | None
    html_url: str | None
    created_at: int | None
    updated_at: int | None
    closed_at: int | None
    merged_at: int | None
    deleted_at: int | None
    merge_state: Any


class WorkflowRunRow(TypedDict):
    """One attempt of a workflow run."""

    repository_id: int
    repo: str
    received_at: int
    id: int
    run_attempt: int
    node_id: str | None
    name: str | None
    display_title: str | None
    path: str | None
    event: str | None
    status: str | None
    conclusion: str | None
    workflow_id: int | None
    check_suite_id: int | None
    run_number: int | None
    head_branch: str | None
    head_sha: str | None
    head_repository_full_name: str | None
    head_repository_id: int | None
    actor_login: str | None
    triggering_actor_login: str | None
    pull_requests: list[int] | None
    html_url: str | None
    created_at: int | None
    updated_at: int | None
    run_started_at: int | None
    deleted_at: int | None
    merge_state: Any


class WorkflowJobRow(TypedDict):
    """One job of a workflow run, upstream's own."""

    repository_id: int
    repo: str
    received_at: int
    id: int
    run_id: int | None
    run_attempt: int | None
    node_id: str | None
    name: str | None
    workflow_name: str | None
    status: str | None
    conclusion: str | None
    head_sha: str | None
    head_branch: str | None
    labels: list[str] | None
    runner_id: int | None
    runner_name: str | None
    runner_group_id: int | None
    runner_group_name: str | None
    steps: Any
    html_url: str | None
    created_at: int | None
    started_at: int | None
    completed_at: int | None
    deleted_at: int | None
    merge_state: Any


class CheckRunRow(TypedDict):
    """A check run of anybody's."""

    repository_id: int
    repo: str
    received_at: int
    id: int
    node_id: str | None
    name: str | None
    external_id: str | None
    head_sha: str | None
    status: str | None
    conclusion: str | None
    check_suite_id: int | None
    app_id: int | None
    app_slug: str | None
    output_title: str | None
    output_summary: str | None
    output_annotations_count: int | None
    pull_requests: list[int] | None
    details_url: str | None
    html_url: str | None
    started_at: int | None
    completed_at: int | None
    deleted_at: int | None
    merge_state: Any


class IssueCommentValues(TypedDict):
    """What a handler reads of a comment."""

    body: str | None


class PullValues(TypedDict):
    """What a handler reads of a pull request."""

    number: int
    head_sha: str | None


class LabelEventValues(TypedDict):
    """What a handler reads of a label put on a pull request or taken off."""

    label_name: str | None


class PushValues(TypedDict):
    """What a handler reads of a push."""

    repository_id: int
    deleted: bool | None


class WorkflowRunValues(TypedDict):
    """What a handler reads of a workflow run."""

    id: int
    run_attempt: int
    status: str | None


class WorkflowJobValues(TypedDict):
    """What a handler reads of a job."""

    id: int
    status: str | None
    conclusion: str | None


class InstallationValues(TypedDict):
    """What a handler reads of an installation."""

    account_login: str | None
