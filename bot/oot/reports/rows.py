"""Rows of static keys and of what was lately accepted."""

from __future__ import annotations

from typing import TypedDict


class KeyRow(TypedDict):
    """A static key of a backend."""

    id: str
    repo: str
    digest: bytes
    note: str
    created_at: int
    used_at: int | None
    revoked_at: int | None
