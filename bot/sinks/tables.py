"""Tables of sinks: what is to be sent, what was refused, how each export stands, which repositories were exported."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Int, Millis, Text, table


class QueueKey(TypedDict):
    """An export of a sink."""

    sink: Text
    what: Text  # the export's name


class ChangedKey(TypedDict):
    """The key of a row: see bot.db.exports.encode_key."""

    key: Text


class ChangeAge(TypedDict):
    """Since when a change waits, and how often it was noted since."""

    since: Millis
    generation: Int


class PendingChange(ChangedKey, ChangeAge):
    """A change of an export that waits."""


class PendingChangeRow(QueueKey, ChangedKey, ChangeAge):
    """A change that waits for a sink."""


sink_mark = table("sink_mark", PendingChangeRow, key=("sink", "what", "key"))
sink_mark.dialect_options["sqlite"]["with_rowid"] = False  # its key is all there is: a third less to write
sa.Index("ix_sink_mark_since", sink_mark.c.sink, sink_mark.c.what, sink_mark.c.since, sink_mark.c.key)


class RefusedRow(QueueKey, ChangedKey):
    """A row that a sink does not take."""

    error: Text
    at: Millis


sink_refused = table("sink_refused", RefusedRow, key=("sink", "what", "key"))


class QueueHold(TypedDict):
    """Why nothing is sent."""

    paused: Bool  # by the operator
    stopped: Text | None  # what has to be mended first
    due_at: Millis  # nothing is sent before
    failures: Int  # in a row
    error: Text | None  # of the last of them


class QueueRun(TypedDict):
    """The last run, and what was sent in all."""

    run: Text  # of the task that sends now, or did last
    version: Big  # of the batch it sends: greater than all before, whatever the clock says
    sent_at: Millis | None
    sent: Big


class QueueBackfill(TypedDict):
    """How far a backfill is."""

    began_at: Millis  # what was received before and has not changed since was never to be sent
    filled_from: Millis | None  # rows since then are to be marked; null: none are
    filled_after: Text | None  # the last key that was; null: none yet
    filled: Big  # how many were


class QueueStateRow(QueueKey, QueueHold, QueueRun, QueueBackfill):
    """The state of a queue."""


sink_state = table("sink_state", QueueStateRow, key=("sink", "what"))


class ExportedRepositoryRow(TypedDict):
    """A repository of which a sink has copies, where the sink may not have private ones."""

    sink: Text
    repository_id: Big
    withdrawn_at: Millis | None  # when it had become private, and deleting the copies was asked for
    deleted: Bool  # all that could be deleted was


sink_repository = table("sink_repository", ExportedRepositoryRow, key=("sink", "repository_id"))
