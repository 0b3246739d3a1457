"""Static keys, and how much was lately accepted of each caller."""

from __future__ import annotations

from typing import TypedDict

from bot.db.rows import Big, Bytes, Int, Millis, Text, table


class KeyRow(TypedDict):
    """A static key of a backend."""

    id: Text  # the part of a static key that is no secret
    repo: Text
    digest: Bytes  # SHA-256 of the secret part
    note: Text
    created_at: Millis
    used_at: Millis | None
    revoked_at: Millis | None


oot_key = table("oot_key", KeyRow, key=("id",))


class RateRow(TypedDict):
    """How many reports of a caller were accepted in one second."""

    caller: Text
    second: Big  # epoch seconds
    accepted: Int


oot_rate = table("oot_rate", RateRow, key=("caller", "second"))
