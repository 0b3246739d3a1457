"""Record types: the fields stored of each of GitHub's objects.

Columns keep GitHub's names; a dotted path becomes one name (`head.sha` is `head_sha`), `labels[].name` stores the
list of names as `labels`. Every table also has `repository_id`, `repo`, `received_at` (of its first delivery) and
`deleted_at` (tombstone). The merge rules (see `Rule`) make the order of deliveries irrelevant.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from bot.core.json_fields import Kind, Unreadable, read, reader, require_int

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.ingest import rows

V = TypeVar("V")


class Rule(StrEnum):
    """How two versions of one row are merged, whatever order they arrive in.

    NEWEST   the greater (updated_at, weight of the action, rank of the status where there is one, SHA-256 of the
             object) wins whole, nulls included. GitHub's times are in seconds, and much may happen in one: a creating
             action weighs least, then any other, then a new head or visibility, then an end or a reopening, then
             what was read from GitHub's API afterwards.
    FURTHEST no updated_at: rank queued < waiting < in_progress < completed, then completed_at, then the hash; a column
             takes its value from the greatest version in which it was not null, so a null never erases.
    HISTORY  each delivery is a row of its own (key: its GUID); nothing overwrites anything.
    """

    NEWEST = "newest"
    FURTHEST = "furthest"
    HISTORY = "history"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One stored field: its column name, where it is in the object, and its type."""

    name: str
    path: tuple[str, ...]
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class RecordType(Generic[V]):
    """One table of normalized records, with the values that handlers read of them."""

    table: str
    at: str  # the payload's member that holds the object; "" is the payload itself
    key: tuple[str, ...]  # within a repository
    rule: Rule
    columns: tuple[Column, ...]

    @cached_property
    def texts(self) -> frozenset[str]:
        """The columns that hold texts."""
        return frozenset({"guid"} | {column.name for column in self.columns if column.kind is Kind.TEXT})

    @cached_property
    def readers(self) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
        """Column names in order, with what reads each of GitHub's object."""
        return tuple((column.name, reader(column.path, column.kind)) for column in self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)


def _type(table: str, columns: str, *, at: str, key: str = "id", rule: Rule = Rule.NEWEST) -> RecordType[Any]:
    """Make a record type from lines such as `title text` or `head.sha text`."""
    parsed = []
    for item in columns.replace("\n", ",").split(","):
        if item.strip():
            path, kind = item.split()
            name = path.split("[]")[0].replace(".", "_")
            parsed.append(Column(name=name, path=tuple(path.split(".")), kind=Kind(kind)))
    return RecordType(table=table, at=at, key=tuple(key.split()), rule=rule, columns=tuple(parsed))


ISSUE: RecordType[object] = _type(
    "issue",
    """id int, node_id text, number int, title text, body text, state text, state_reason text
    user.login text, user.id int, author_association text, labels[].name texts, assignees[].login texts
    milestone.title text, comments int, locked bool, active_lock_reason text, html_url text
    created_at time, updated_at time, closed_at time""",
    at="issue",
)
ISSUE_LABEL_EVENT: RecordType[object] = _type(
    "issue_label_event",
    """action text, issue.id int, issue.number int, label.id int, label.name text, sender.login text
    issue.updated_at time""",
    at="",
    key="guid",
    rule=Rule.HISTORY,
)
ISSUE_COMMENT: RecordType[rows.IssueCommentValues] = _type(
    "issue_comment",
    """id int, node_id text, body text, user.login text, user.id int, author_association text
    html_url text, issue_url text, created_at time, updated_at time""",
    at="comment",
)
PULL_REQUEST: RecordType[rows.PullValues] = _type(
    "pull_request",
    """id int, node_id text, number int, title text, body text, state text, draft bool, locked bool
    user.login text, user.id int, author_association text, labels[].name texts, assignees[].login texts
    requested_reviewers[].login texts, milestone.title text
    head.sha text, head.ref text, head.repo.full_name text, head.repo.id int
    base.sha text, base.ref text, merged bool, merge_commit_sha text, merged_by.login text
    comments int, review_comments int, commits int, additions int, deletions int, changed_files int
    html_url text, created_at time, updated_at time, closed_at time, merged_at time""",
    at="pull_request",
)
PULL_HEAD: RecordType[object] = _type(
    "pull_head",
    "number int, head.sha text, head.ref text, base.sha text, base.ref text, updated_at time",
    at="pull_request",
    key="number head_sha",
)
PULL_LABEL_EVENT: RecordType[rows.LabelEventValues] = _type(
    "pull_label_event",
    """action text, pull_request.id int, pull_request.number int, pull_request.head.sha text
    label.id int, label.name text, sender.login text, pull_request.updated_at time""",
    at="",
    key="guid",
    rule=Rule.HISTORY,
)
PULL_REVIEW: RecordType[object] = _type(
    "pull_review",
    """id int, node_id text, body text, state text, user.login text, user.id int, author_association text
    commit_id text, html_url text, pull_request_url text, submitted_at time, updated_at time""",
    at="review",
)
PULL_REVIEW_COMMENT: RecordType[object] = _type(
    "pull_review_comment",
    """id int, node_id text, pull_request_review_id int, body text, path text, line int, side text
    user.login text, user.id int, author_association text, commit_id text, original_commit_id text
    in_reply_to_id int, diff_hunk text, html_url text, pull_request_url text, created_at time, updated_at time""",
    at="comment",
)
PUSH: RecordType[rows.PushValues] = _type(
    "push",
    """ref text, before text, after text, created bool, deleted bool, forced bool, base_ref text, compare text
    commits[].id texts, head_commit.id text, head_commit.message text, head_commit.timestamp time
    pusher.name text, sender.login text""",
    at="",
    key="guid",
    rule=Rule.HISTORY,
)
WORKFLOW_RUN: RecordType[rows.WorkflowRunValues] = _type(
    "workflow_run",
    """id int, run_attempt int, node_id text, name text, display_title text, path text, event text, status text
    conclusion text, workflow_id int, check_suite_id int, run_number int, head_branch text, head_sha text
    head_repository.full_name text, head_repository.id int, actor.login text, triggering_actor.login text
    pull_requests[].number ints
    html_url text, created_at time, updated_at time, run_started_at time""",
    at="workflow_run",
    key="id run_attempt",
)
WORKFLOW_JOB: RecordType[rows.WorkflowJobValues] = _type(
    "workflow_job",
    """id int, run_id int, run_attempt int, node_id text, name text, workflow_name text, status text
    conclusion text, head_sha text, head_branch text, labels texts, runner_id int, runner_name text
    runner_group_id int, runner_group_name text, steps json, html_url text
    created_at time, started_at time, completed_at time""",
    at="workflow_job",
    rule=Rule.FURTHEST,
)
CHECK_RUN: RecordType[object] = _type(
    "check_run",
    """id int, node_id text, name text, external_id text, head_sha text, status text, conclusion text
    check_suite.id int, app.id int, app.slug text, output.title text, output.summary text
    output.annotations_count int, pull_requests[].number ints, details_url text, html_url text
    started_at time, completed_at time""",
    at="check_run",
    rule=Rule.FURTHEST,
)
CHECK_SUITE: RecordType[object] = _type(
    "check_suite",
    """id int, node_id text, head_branch text, head_sha text, status text, conclusion text, before text, after text
    app.id int, app.slug text, pull_requests[].number ints, latest_check_runs_count int
    created_at time, updated_at time""",
    at="check_suite",
)
REPOSITORY: RecordType[object] = _type(
    "repository",
    """id int, node_id text, name text, full_name text, private bool, owner.login text, owner.id int, fork bool
    description text, archived bool, disabled bool, visibility text, default_branch text, language text
    topics texts, html_url text, created_at time, updated_at time, pushed_at time""",
    at="repository",
)
INSTALLATION: RecordType[rows.InstallationValues] = _type(
    "installation",
    """id int, account.login text, account.id int, account.type text, app_id int, app_slug text
    target_type text, target_id int, repository_selection text, permissions json, events texts
    suspended_at time, created_at time, updated_at time""",
    at="installation",
)

TYPES: dict[str, RecordType[Any]] = {
    kind.table: kind
    for kind in (
        ISSUE, ISSUE_LABEL_EVENT, ISSUE_COMMENT, PULL_REQUEST, PULL_HEAD, PULL_LABEL_EVENT,
        PULL_REVIEW, PULL_REVIEW_COMMENT, PUSH, WORKFLOW_RUN, WORKFLOW_JOB, CHECK_RUN, CHECK_SUITE, REPOSITORY,
        INSTALLATION,
    )
}  # fmt: skip


Values = dict[str, Any]  # of a record, by column: the record type says which
CREATING_ACTIONS = frozenset({"opened", "created", "submitted", "requested"})
# which of two actions within one second wins, weakest first: a new head or visibility; an end or a reopening;
# what was read from GitHub's API afterwards
WEIGHTS = (("synchronize", "privatized", "publicized"), ("closed", "reopened"), ("reconciled",))
DECISIVE_ACTIONS = {action: weight for weight, actions in enumerate(WEIGHTS, 2) for action in actions}
STATUS_RANK = {
    "requested": 0,
    "queued": 0,
    "pending": 0,
    "waiting": 1,
    "in_progress": 2,
    "completed": 3,
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row to be merged into its table, with the version that decides."""

    type: RecordType[Any]
    values: Values
    version: str

    @property
    def key(self) -> tuple[Any, ...]:
        """The primary key."""
        return (self.values["repository_id"], *(self.values[name] for name in self.type.key))


def from_payload(
    kind: RecordType[Any], payload: dict[str, Any], *, guid: str, received_at: int, deleted: bool = False
) -> Record:
    """Read one record out of a webhook body; raises Unreadable when its key cannot be read."""
    source = payload if not kind.at else payload.get(kind.at)
    if not isinstance(source, dict):
        raise Unreadable(f"{kind.at} is not an object")
    repository = payload.get("repository")
    inside = repository if isinstance(repository, dict) else {}
    values: Values = {
        "repository_id": require_int(inside, "id", "repository.id") if inside else 0,
        "repo": read(inside, ("full_name",), Kind.TEXT) or "",
        "received_at": received_at,
        "deleted_at": received_at if deleted else None,
    }
    for name, read_of in kind.readers:
        values[name] = read_of(source)
    if "guid" in kind.key:
        values["guid"] = guid
    for name in kind.key:
        if values[name] is None:
            raise Unreadable(f"{kind.at}.{name} is missing or of another kind")
    return Record(type=kind, values=values, version=version_of(kind, source, values, payload.get("action")))


def version_of(kind: RecordType[Any], source: Any, values: Values, action: object) -> str:
    """Return a text that is greater for the version that wins; equal only for equal objects."""
    digest = hashlib.sha256(msgspec.json.encode(source, order="deterministic")).hexdigest()
    rank = STATUS_RANK.get(values.get("status") or "", 0)
    if kind.rule is Rule.FURTHEST:
        return f"{rank}:{values.get('completed_at') or 0:015d}:{digest}"
    happened = action if isinstance(action, str) else ""
    later = 0 if happened in CREATING_ACTIONS else DECISIVE_ACTIONS.get(happened, 1)
    return f"{values.get('updated_at') or 0:015d}:{later}:{rank}:{digest}"


def merge(old: Values | None, new: Record) -> Values | None:
    """Return the row merged from two versions, or None when the old row does not change.

    `merge_state` holds the row's version under `v` and, for FURTHEST, under `older` the versions of the
    columns that come from an older version.
    """
    if old is None:
        return {**new.values, "merge_state": {"v": new.version}}
    if new.type.rule is Rule.HISTORY:
        return None
    row = _furthest(old, new) if new.type.rule is Rule.FURTHEST else _newest(old, new)
    row["received_at"] = min(old["received_at"], new.values["received_at"])
    row["deleted_at"] = _earliest(old["deleted_at"], new.values["deleted_at"])
    return row if row != old else None


def _newest(old: Values, new: Record) -> Values:
    if new.version <= old["merge_state"]["v"]:
        return dict(old)
    return {**old, **new.values, "merge_state": {"v": new.version}}


def _furthest(old: Values, new: Record) -> Values:
    top = max(old["merge_state"]["v"], new.version)
    older_versions: dict[str, str] = old["merge_state"].get("older", {})
    row, older = dict(old), {}
    for name in (*new.type.key, "repository_id", "repo", *new.type.names):
        value = new.values[name]
        was = older_versions.get(name, old["merge_state"]["v"])
        if value is not None and (old[name] is None or new.version > was):
            row[name], was = value, new.version
        if row[name] is not None and was != top:
            older[name] = was
    row["merge_state"] = {"v": top, "older": older} if older else {"v": top}
    return row


def _earliest(one: int | None, other: int | None) -> int | None:
    known = [at for at in (one, other) if at is not None]
    return min(known, default=None)
