"""The table of what the administrator's sessions are checked against."""

from __future__ import annotations

from typing import TypedDict

from bot.db.rows import Big, Text, table


class AdminSignOutRow(TypedDict):
    """The time before which all sessions of an ADMIN_TOKEN have ended."""

    token_id: Text  # of an ADMIN_TOKEN: an HMAC made with it
    not_before: Big  # sessions begun earlier have ended


admin_sign_out = table("admin_sign_out", AdminSignOutRow, key=("token_id",))
