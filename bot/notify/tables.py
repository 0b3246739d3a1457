"""Tables of notices: conditions that were told, the notices about them, and their sending to receivers."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Int, Json, Millis, Text, partial_index, table


class ToldKey(TypedDict):
    """A condition, as an audience sees it."""

    audience: Text  # public | private: without private repositories, and with them
    event: Text
    key: Text


class ToldRow(ToldKey):
    """A condition that was told and has not ended, as far as known."""

    notice_id: Text  # that told of it
    seen_at: Millis  # when it was last found to hold, to the day


notice_told = table("notice_told", ToldRow, key=("audience", "event", "key"))
sa.Index("ix_notice_told_notice", notice_told.c.notice_id)


class NoticeSubject(TypedDict):
    """What a notice is about."""

    repo: Text
    branch: Text
    backend: Text
    oncalls: Json[list[str]]
    path: Text  # the page on this bot


class NoticeText(TypedDict):
    """What a notice says."""

    event: Text
    at: Millis
    began_at: Millis | None  # what it tells of
    heading: Text
    lines: Json[list[str]]


class NoticeRow(NoticeText, NoticeSubject):
    """Something that people were told."""

    id: Text  # a UUID
    audience: Text


notice = table("notice", NoticeRow, key=("id",))
sa.Index("ix_notice_at", notice.c.audience, notice.c.at)
sa.Index("ix_notice_backend", notice.c.audience, notice.c.backend, notice.c.at)
sa.Index("ix_notice_branch", notice.c.audience, notice.c.repo, notice.c.branch, notice.c.at)


class SendingKey(TypedDict):
    """A notice and its receiver."""

    notice_id: Text
    receiver: Text


class SendingRow(SendingKey):
    """The state of sending a notice to a receiver."""

    state: Text  # waiting | sent | dead | dropped
    attempts: Int
    created_at: Millis
    ended_at: Millis | None
    error: Text | None  # why the last attempt failed


notice_sending = table("notice_sending", SendingRow, key=("notice_id", "receiver"))
partial_index(
    "ix_notice_sending_waiting",
    notice_sending.c.receiver,
    notice_sending.c.created_at,
    where=notice_sending.c.state == "waiting",
)
sa.Index(
    "ix_notice_sending_state", notice_sending.c.receiver, notice_sending.c.state, notice_sending.c.ended_at
)
