"""Row classes of the records: which fields of GitHub's objects are stored, and where they are in the object."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from bot.db.rows import Big, Bool, Json, Millis, Text


class RecordStart(TypedDict):
    """What every record begins with."""

    repository_id: Big
    repo: Text
    received_at: Millis  # of its first delivery


class EventStart(RecordStart):
    """What a record of something that happened begins with: each delivery is one."""

    guid: Text


class RecordEnd(TypedDict):
    """The last columns of every record's table; see `bot.ingest.tables.merge`."""

    deleted_at: Millis | None  # tombstone
    merge_state: Json[dict[str, Any]]


class IssueRow(RecordStart):
    """An issue."""

    id: Big
    node_id: Text | None
    number: Big | None
    title: Text | None
    body: Text | None
    state: Text | None
    state_reason: Text | None
    user_login: Annotated[Text | None, "user.login"]
    user_id: Annotated[Big | None, "user.id"]
    author_association: Text | None
    labels: Annotated[Json[list[str]] | None, "labels[].name"]
    assignees: Annotated[Json[list[str]] | None, "assignees[].login"]
    milestone_title: Annotated[Text | None, "milestone.title"]
    comments: Big | None
    locked: Bool | None
    active_lock_reason: Text | None
    html_url: Text | None
    created_at: Millis | None
    updated_at: Millis | None
    closed_at: Millis | None


class IssueLabelEventRow(EventStart):
    """A label put on an issue or taken off."""

    action: Text | None
    issue_id: Annotated[Big | None, "issue.id"]
    issue_number: Annotated[Big | None, "issue.number"]
    label_id: Annotated[Big | None, "label.id"]
    label_name: Annotated[Text | None, "label.name"]
    sender_login: Annotated[Text | None, "sender.login"]
    issue_updated_at: Annotated[Millis | None, "issue.updated_at"]


class IssueCommentRow(RecordStart):
    """A comment on an issue or pull request."""

    id: Big
    node_id: Text | None
    body: Text | None
    user_login: Annotated[Text | None, "user.login"]
    user_id: Annotated[Big | None, "user.id"]
    author_association: Text | None
    html_url: Text | None
    issue_url: Text | None
    created_at: Millis | None
    updated_at: Millis | None


class PullRow(RecordStart):
    """A pull request."""

    id: Big
    node_id: Text | None
    number: Big | None
    title: Text | None
    body: Text | None
    state: Text | None
    draft: Bool | None
    locked: Bool | None
    user_login: Annotated[Text | None, "user.login"]
    user_id: Annotated[Big | None, "user.id"]
    author_association: Text | None
    labels: Annotated[Json[list[str]] | None, "labels[].name"]
    assignees: Annotated[Json[list[str]] | None, "assignees[].login"]
    requested_reviewers: Annotated[Json[list[str]] | None, "requested_reviewers[].login"]
    milestone_title: Annotated[Text | None, "milestone.title"]
    head_sha: Annotated[Text | None, "head.sha"]
    head_ref: Annotated[Text | None, "head.ref"]
    head_repo_full_name: Annotated[Text | None, "head.repo.full_name"]
    head_repo_id: Annotated[Big | None, "head.repo.id"]
    base_sha: Annotated[Text | None, "base.sha"]
    base_ref: Annotated[Text | None, "base.ref"]
    merged: Bool | None
    merge_commit_sha: Text | None
    merged_by_login: Annotated[Text | None, "merged_by.login"]
    comments: Big | None
    review_comments: Big | None
    commits: Big | None
    additions: Big | None
    deletions: Big | None
    changed_files: Big | None
    html_url: Text | None
    created_at: Millis | None
    updated_at: Millis | None
    closed_at: Millis | None
    merged_at: Millis | None


class PullHeadRow(RecordStart):
    """A head that a pull request has or had."""

    number: Big
    head_sha: Annotated[Text, "head.sha"]
    head_ref: Annotated[Text | None, "head.ref"]
    base_sha: Annotated[Text | None, "base.sha"]
    base_ref: Annotated[Text | None, "base.ref"]
    updated_at: Millis | None


class PullLabelEventRow(EventStart):
    """A label put on a pull request or taken off."""

    action: Text | None
    pull_request_id: Annotated[Big | None, "pull_request.id"]
    pull_request_number: Annotated[Big | None, "pull_request.number"]
    pull_request_head_sha: Annotated[Text | None, "pull_request.head.sha"]
    label_id: Annotated[Big | None, "label.id"]
    label_name: Annotated[Text | None, "label.name"]
    sender_login: Annotated[Text | None, "sender.login"]
    pull_request_updated_at: Annotated[Millis | None, "pull_request.updated_at"]


class PullReviewRow(RecordStart):
    """A review of a pull request."""

    id: Big
    node_id: Text | None
    body: Text | None
    state: Text | None
    user_login: Annotated[Text | None, "user.login"]
    user_id: Annotated[Big | None, "user.id"]
    author_association: Text | None
    commit_id: Text | None
    html_url: Text | None
    pull_request_url: Text | None
    submitted_at: Millis | None
    updated_at: Millis | None


class PullReviewCommentRow(RecordStart):
    """A comment of a review."""

    id: Big
    node_id: Text | None
    pull_request_review_id: Big | None
    body: Text | None
    path: Text | None
    line: Big | None
    side: Text | None
    user_login: Annotated[Text | None, "user.login"]
    user_id: Annotated[Big | None, "user.id"]
    author_association: Text | None
    commit_id: Text | None
    original_commit_id: Text | None
    in_reply_to_id: Big | None
    diff_hunk: Text | None
    html_url: Text | None
    pull_request_url: Text | None
    created_at: Millis | None
    updated_at: Millis | None


class PushRow(EventStart):
    """A push to a branch or tag, or its deletion."""

    ref: Text | None
    before: Text | None
    after: Text | None
    created: Bool | None
    deleted: Bool | None
    forced: Bool | None
    base_ref: Text | None
    compare: Text | None
    commits: Annotated[Json[list[str]] | None, "commits[].id"]
    head_commit_id: Annotated[Text | None, "head_commit.id"]
    head_commit_message: Annotated[Text | None, "head_commit.message"]
    head_commit_timestamp: Annotated[Millis | None, "head_commit.timestamp"]
    pusher_name: Annotated[Text | None, "pusher.name"]
    sender_login: Annotated[Text | None, "sender.login"]


class WorkflowRunRow(RecordStart):
    """One attempt of a workflow run."""

    id: Big
    run_attempt: Big
    node_id: Text | None
    name: Text | None
    display_title: Text | None
    path: Text | None
    event: Text | None
    status: Text | None
    conclusion: Text | None
    workflow_id: Big | None
    check_suite_id: Big | None
    run_number: Big | None
    head_branch: Text | None
    head_sha: Text | None
    head_repository_full_name: Annotated[Text | None, "head_repository.full_name"]
    head_repository_id: Annotated[Big | None, "head_repository.id"]
    actor_login: Annotated[Text | None, "actor.login"]
    triggering_actor_login: Annotated[Text | None, "triggering_actor.login"]
    pull_requests: Annotated[Json[list[int]] | None, "pull_requests[].number"]
    html_url: Text | None
    created_at: Millis | None
    updated_at: Millis | None
    run_started_at: Millis | None


class WorkflowJobRow(RecordStart):
    """One job of a workflow run."""

    id: Big
    run_id: Big | None
    run_attempt: Big | None
    node_id: Text | None
    name: Text | None
    workflow_name: Text | None
    status: Text | None
    conclusion: Text | None
    head_sha: Text | None
    head_branch: Text | None
    labels: Json[list[str]] | None
    runner_id: Big | None
    runner_name: Text | None
    runner_group_id: Big | None
    runner_group_name: Text | None
    steps: Json[Any] | None
    html_url: Text | None
    created_at: Millis | None
    started_at: Millis | None
    completed_at: Millis | None


class CheckRunRow(RecordStart):
    """A check run, of any App."""

    id: Big
    node_id: Text | None
    name: Text | None
    external_id: Text | None
    head_sha: Text | None
    status: Text | None
    conclusion: Text | None
    check_suite_id: Annotated[Big | None, "check_suite.id"]
    app_id: Annotated[Big | None, "app.id"]
    app_slug: Annotated[Text | None, "app.slug"]
    output_title: Annotated[Text | None, "output.title"]
    output_summary: Annotated[Text | None, "output.summary"]
    output_annotations_count: Annotated[Big | None, "output.annotations_count"]
    pull_requests: Annotated[Json[list[int]] | None, "pull_requests[].number"]
    details_url: Text | None
    html_url: Text | None
    started_at: Millis | None
    completed_at: Millis | None


class CheckSuiteRow(RecordStart):
    """A check suite, of any App."""

    id: Big
    node_id: Text | None
    head_branch: Text | None
    head_sha: Text | None
    status: Text | None
    conclusion: Text | None
    before: Text | None
    after: Text | None
    app_id: Annotated[Big | None, "app.id"]
    app_slug: Annotated[Text | None, "app.slug"]
    pull_requests: Annotated[Json[list[int]] | None, "pull_requests[].number"]
    latest_check_runs_count: Big | None
    created_at: Millis | None
    updated_at: Millis | None


class RepositoryRow(RecordStart):
    """A repository."""

    id: Big
    node_id: Text | None
    name: Text | None
    full_name: Text | None
    private: Bool | None
    owner_login: Annotated[Text | None, "owner.login"]
    owner_id: Annotated[Big | None, "owner.id"]
    fork: Bool | None
    description: Text | None
    archived: Bool | None
    disabled: Bool | None
    visibility: Text | None
    default_branch: Text | None
    language: Text | None
    topics: Json[list[str]] | None
    html_url: Text | None
    created_at: Millis | None
    updated_at: Millis | None
    pushed_at: Millis | None


class InstallationRow(RecordStart):
    """An installation of our App."""

    id: Big
    account_login: Annotated[Text | None, "account.login"]
    account_id: Annotated[Big | None, "account.id"]
    account_type: Annotated[Text | None, "account.type"]
    app_id: Big | None
    app_slug: Text | None
    target_type: Text | None
    target_id: Big | None
    repository_selection: Text | None
    permissions: Json[Any] | None
    events: Json[list[str]] | None
    suspended_at: Millis | None
    created_at: Millis | None
    updated_at: Millis | None
