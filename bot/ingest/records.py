"""Record types: how GitHub's objects are read into the rows of `bot.ingest.rows`, and how versions of one are merged.

The merge rules (see `Rule`) make the order of deliveries irrelevant.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from bot.core.json_fields import Kind, Unreadable, member_reader, read_member, require_int
from bot.db.rows import fields
from bot.ingest.rows import (
    CheckRunRow,
    CheckSuiteRow,
    EventStart,
    InstallationRow,
    IssueCommentRow,
    IssueLabelEventRow,
    IssueRow,
    PullHeadRow,
    PullLabelEventRow,
    PullReviewCommentRow,
    PullReviewRow,
    PullRow,
    PushRow,
    RepositoryRow,
    WorkflowJobRow,
    WorkflowRunRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.db.rows import Field

R = TypeVar("R")
STARTS = fields(EventStart).keys()  # columns that are not fields of the object


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


KINDS: dict[Any, Kind] = {  # of stored fields, by the types of their columns; times are numbers, too
    int: Kind.INT,
    str: Kind.TEXT,
    bool: Kind.BOOL,
    list[str]: Kind.TEXTS,
    list[int]: Kind.INTS,
    Any: Kind.JSON,
}


def _column(field: Field) -> Column:
    path = next((note for note in field.notes if isinstance(note, str)), field.name)
    kind = Kind.TIME if field.is_time else KINDS[field.type]
    return Column(name=field.name, path=tuple(path.split(".")), kind=kind)


@dataclass(frozen=True, kw_only=True)
class RecordType(Generic[R]):
    """One table of normalized records."""

    table: str
    row: type[R]
    at: str  # the payload's member that holds the object; "" is the payload itself
    key: tuple[str, ...] = ("id",)  # within a repository
    rule: Rule = Rule.NEWEST

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The fields stored of the object, in order."""
        declared = fields(self.row)
        return tuple(_column(field) for name, field in declared.items() if name not in STARTS)

    @cached_property
    def texts(self) -> frozenset[str]:
        """The columns that hold texts."""
        return frozenset({"guid"} | {column.name for column in self.columns if column.kind is Kind.TEXT})

    @cached_property
    def readers(self) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
        """Column names in order, with what reads each of GitHub's object."""
        return tuple((column.name, member_reader(column.path, column.kind)) for column in self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)


ISSUE = RecordType(table="issue", row=IssueRow, at="issue")
ISSUE_LABEL_EVENT = RecordType(
    table="issue_label_event", row=IssueLabelEventRow, at="", key=("guid",), rule=Rule.HISTORY
)
ISSUE_COMMENT = RecordType(table="issue_comment", row=IssueCommentRow, at="comment")
PULL_REQUEST = RecordType(table="pull_request", row=PullRow, at="pull_request")
PULL_HEAD = RecordType(table="pull_head", row=PullHeadRow, at="pull_request", key=("number", "head_sha"))
PULL_LABEL_EVENT = RecordType(
    table="pull_label_event", row=PullLabelEventRow, at="", key=("guid",), rule=Rule.HISTORY
)
PULL_REVIEW = RecordType(table="pull_review", row=PullReviewRow, at="review")
PULL_REVIEW_COMMENT = RecordType(table="pull_review_comment", row=PullReviewCommentRow, at="comment")
PUSH = RecordType(table="push", row=PushRow, at="", key=("guid",), rule=Rule.HISTORY)
WORKFLOW_RUN = RecordType(
    table="workflow_run", row=WorkflowRunRow, at="workflow_run", key=("id", "run_attempt")
)
WORKFLOW_JOB = RecordType(table="workflow_job", row=WorkflowJobRow, at="workflow_job", rule=Rule.FURTHEST)
CHECK_RUN = RecordType(table="check_run", row=CheckRunRow, at="check_run", rule=Rule.FURTHEST)
CHECK_SUITE = RecordType(table="check_suite", row=CheckSuiteRow, at="check_suite")
REPOSITORY = RecordType(table="repository", row=RepositoryRow, at="repository")
INSTALLATION = RecordType(table="installation", row=InstallationRow, at="installation")

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
    guid: str  # of the delivery it was read out of

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
        "repo": read_member(inside, ("full_name",), Kind.TEXT) or "",
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
    version = version_of(kind, source, values, payload.get("action"))
    return Record(type=kind, values=values, version=version, guid=guid)


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

    `merge_state` holds the row's version under `v`, the delivery that it came with under `guid` and, for FURTHEST,
    under `older` the versions of the columns that come from an older version.
    """
    if old is None:
        return {**new.values, "merge_state": {"v": new.version, "guid": new.guid}}
    if new.type.rule is Rule.HISTORY:
        return None
    row = _furthest(old, new) if new.type.rule is Rule.FURTHEST else _newest(old, new)
    row["received_at"] = min(old["received_at"], new.values["received_at"])
    row["deleted_at"] = _earliest(old["deleted_at"], new.values["deleted_at"])
    return row if row != old else None


def _newest(old: Values, new: Record) -> Values:
    top = _greater(old["merge_state"], new)
    if new.version <= old["merge_state"]["v"]:
        return {**old, "merge_state": top}
    return {**old, **new.values, "merge_state": top}


def _greater(state: dict[str, Any], new: Record) -> dict[str, Any]:
    """Return the greater version with its delivery: of deliveries that show the same, the first by GUID."""
    version, guid = state["v"], state["guid"]
    if new.version > version or (new.version == version and new.guid < guid):
        version, guid = new.version, new.guid
    return {"v": version, "guid": guid}


def _furthest(old: Values, new: Record) -> Values:
    state = _greater(old["merge_state"], new)
    top = state["v"]
    older_versions: dict[str, str] = old["merge_state"].get("older", {})
    row, older = dict(old), {}
    for name in (*new.type.key, "repository_id", "repo", *new.type.names):
        value = new.values[name]
        was = older_versions.get(name, old["merge_state"]["v"])
        if value is not None and (old[name] is None or new.version > was):
            row[name], was = value, new.version
        if row[name] is not None and was != top:
            older[name] = was
    row["merge_state"] = state | {"older": older} if older else state
    return row


def _earliest(one: int | None, other: int | None) -> int | None:
    known = [at for at in (one, other) if at is not None]
    return min(known, default=None)
