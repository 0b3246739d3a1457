"""Static keys, and how much was lately accepted of each caller."""

from __future__ import annotations

from typing import TypedDict

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
