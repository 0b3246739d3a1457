"""Static keys, how much was lately accepted of each caller, and pings."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bytes, Int, Millis, Text, table


class KeyName(TypedDict):
    """The public part of a static key, and whose it is."""

    id: Text  # the part of a static key that is no secret
    repo: Text


class KeyUse(TypedDict):
    """What a static key is for, and since and until when it is used."""

    note: Text
    created_at: Millis
    used_at: Millis | None
    revoked_at: Millis | None


class KeySecret(TypedDict):
    """What a static key is recognised by."""

    digest: Bytes  # SHA-256 of the secret part


class KeyRow(KeyName, KeySecret, KeyUse):
    """A static key of a backend."""


class ListedKeyRow(KeyName, KeyUse):
    """A static key without its digest."""


oot_key = table("oot_key", KeyRow, key=("id",))


class RateRow(TypedDict):
    """How many reports of a caller were accepted in one second."""

    caller: Text
    second: Big  # epoch seconds
    accepted: Int


oot_rate = table("oot_rate", RateRow, key=("caller", "second"))


class PingRow(TypedDict):
    """A test dispatch: it is on no pull request and in no statistics."""

    id: Text  # its delivery_id, which tells it from a dispatch
    backend: Text
    backend_key: Text  # the name, case folded
    requested_by: Text
    cause: Text  # the comment or form that asked for it
    created_at: Millis
    token_jti: Text
    state: Text  # pending | sent | not_installed | failed
    error: Text | None  # why it was not sent
    sent_at: Millis | None
    run_id: Text | None  # of its run, where the answer to the dispatch or a report says so
    started_at: Millis | None  # when a report that it began was accepted
    completed_at: Millis | None
    conclusion: Text | None
    refused_at: Millis | None
    refusal: Text | None  # why a report on it was refused last


oot_ping = table("oot_ping", PingRow, sa.UniqueConstraint("cause", name="ux_oot_ping_cause"), key=("id",))
sa.Index("ix_oot_ping_backend", oot_ping.c.backend_key, oot_ping.c.created_at)
