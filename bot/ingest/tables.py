"""Tables of deliveries, repository names and sweeps, and one table per record type, made from `records`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import sqlalchemy as sa

from bot.db.columns import partial_index
from bot.db.rows import Big, Bool, Bytes, Default, Int, Millis, Text, table
from bot.ingest.records import TYPES, RecordType
from bot.ingest.rows import RecordEnd


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
FROM_OTHERS = delivery.c.source.not_in([sa.literal_column(f"'{one}'") for one in ("webhook", "api", "pull")])
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
