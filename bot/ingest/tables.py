"""Tables of deliveries, repositories and sweeps, and of records: how GitHub's objects are read and merged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypedDict, TypeVar

import msgspec
import sqlalchemy as sa

from bot.core.json_fields import Kind, Unreadable, member_reader, read_member, require_int
from bot.db.rows import Big, Bool, Bytes, Default, Int, Millis, Text, fields, partial_index, table
from bot.ingest.record_rows import (
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
    RecordEnd,
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
    order: tuple[str, ...] = ()  # of lists, where it is not that of the key

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


def _earliest(first: int | None, second: int | None) -> int | None:
    known = [at for at in (first, second) if at is not None]
    return min(known, default=None)


class DeliveryId(TypedDict):
    """Its id in the inbox."""

    id: Big


class DeliveryEvent(TypedDict):
    """Which event it is."""

    guid: Text
    event: Text


class DeliveryAction(TypedDict, total=False):
    """What happened to its object."""

    action: Text | None


class DeliveryRepository(TypedDict, total=False):
    """Which repository it is about."""

    repo: Text | None


class DeliverySubject(TypedDict, total=False):
    """What it is about, and where it comes from."""

    repository_id: Big | None
    installation_id: Big | None  # recorded, never used for access
    app_id: Big | None  # X-GitHub-Hook-Installation-Target-ID
    source: Text  # webhook | api | pull | bisect, else the sender: circleci, buildkite


class DeliveryTime(TypedDict):
    """When it came."""

    received_at: Millis


class DeliveryState(TypedDict):
    """Its state, and when it is tried next."""

    state: Text  # stored | handled | ignored | foreign | parked
    attempts: Annotated[Int, Default("0")]
    due_at: Millis
    error: Text | None


class DeliveryHeaders(TypedDict, total=False):
    """What came with its body."""

    headers: Text | None  # JSON of those worth storing; never a signature


class DeliveryBody(TypedDict):
    """Its body."""

    codec: Text | None  # zstd, zlib; null: the body is as received
    body: Bytes


class DeliveryRow(
    DeliveryId,
    DeliveryEvent,
    DeliveryAction,
    DeliveryRepository,
    DeliverySubject,
    DeliveryTime,
    DeliveryState,
    DeliveryHeaders,
    DeliveryBody,
):
    """A stored webhook."""


class ReceivedRow(DeliveryEvent, DeliveryRepository, DeliveryTime, DeliveryBody):
    """A delivery to be handled."""


delivery = table("delivery", DeliveryRow, sa.UniqueConstraint("guid"), key=("id",))
partial_index("ix_delivery_pending", delivery.c.due_at, where=delivery.c.state == "stored")
sa.Index("ix_delivery_received_at", delivery.c.received_at)
partial_index("ix_delivery_parked", delivery.c.id, where=delivery.c.state == "parked")
FROM_OTHERS = delivery.c.source.not_in([sa.literal_column(f"'{way}'") for way in ("webhook", "api", "pull")])
partial_index("ix_delivery_of_others", delivery.c.received_at, where=FROM_OTHERS)


class RepositoryNameRow(TypedDict):
    """A name that a repository has or had."""

    repository_id: Big
    name: Text  # case folded; every name it has had


repository_name = table(
    "repository_name",
    RepositoryNameRow,
    sa.Index("ix_repository_name_name", "name"),
    key=("repository_id", "name"),
)


class PinnedRepositoryRow(TypedDict):
    """Which repository a name of the settings stands for."""

    name: Text  # case folded; of the settings
    repository_id: Big
    pinned_at: Millis
    moved_to: Text | None  # the name under which it was heard of since: nothing is done for that
    unreachable: Text | None  # why GitHub refused to list what is open there


pinned_repository = table("pinned_repository", PinnedRepositoryRow, key=("name",))


class SweepRow(TypedDict):
    """How far a periodic look at GitHub has come."""

    app_id: Big  # 0 where no App is concerned
    name: Text  # what is swept: redeliver, reconcile, records, ...
    created_at: Millis
    tried_at: Millis | None  # when the first try since the last complete one began
    reached: Millis | None  # everything before has been read
    finished_at: Millis | None  # the last complete one
    found: Big


sweep = table("sweep", SweepRow, key=("app_id", "name"))


class LogOwner(TypedDict):
    """Whose log it is in."""

    app_id: Big


class LogEntry(TypedDict):
    """One attempt to deliver, as GitHub's log lists it."""

    guid: Text
    log_id: Big  # GitHub's id of the attempt, used to request it again
    event: Text
    repository_id: Big | None  # none where it is about an account
    delivered_at: Millis


class LogRequests(TypedDict):
    """How often it was requested."""

    asks: Int
    asked_at: Millis
    lost: Bool  # GitHub's log no longer has it


class MissedDeliveryRow(LogOwner, LogEntry, LogRequests):
    """A delivery that GitHub's log holds and we never stored."""


missed_delivery = table("missed_delivery", MissedDeliveryRow, key=("app_id", "guid"))


def record_table(kind: RecordType[Any]) -> sa.Table:
    """Return the table of a record type."""
    made = table(kind.table, kind.row, RecordEnd, key=("repository_id", *kind.key))
    sa.Index(f"ix_{kind.table}_repo", sa.func.lower(made.c.repo), made.c[(kind.order or kind.key)[0]])
    return made


records = {name: record_table(kind) for name, kind in TYPES.items()}
sa.Index("ix_workflow_run_id", records["workflow_run"].c.id)
sa.Index("ix_workflow_job_run", records["workflow_job"].c.run_id, records["workflow_job"].c.repository_id)
sa.Index("ix_workflow_run_received_at", records["workflow_run"].c.received_at)
sa.Index("ix_pull_request_number", records["pull_request"].c.number)
sa.Index("ix_issue_number", records["issue"].c.number)
sa.Index("ix_pull_label_event_number", records["pull_label_event"].c.pull_request_number)
sa.Index("ix_pull_review_pull_request_url", records["pull_review"].c.pull_request_url)
sa.Index("ix_push_after", records["push"].c.after)
sa.Index("ix_push_guid", records["push"].c.guid)
for _name in ("pull_request", "pull_head", "workflow_run", "workflow_job", "check_run"):  # by commit
    sa.Index(f"ix_{_name}_head_sha", records[_name].c.head_sha)
OPEN = records["pull_request"].c.state == "open"
partial_index("ix_pull_request_open", records["pull_request"].c.number, where=OPEN)
for _name in ("workflow_run", "workflow_job", "check_run"):  # what reconcile looks up
    _in_flight = records[_name].c.status != "completed"
    partial_index(f"ix_{_name}_in_flight", records[_name].c.received_at, where=_in_flight)
