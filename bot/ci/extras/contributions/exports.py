"""What sinks may have copies of: pull requests of outside people, and what was merged of them, by day."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.extras.contributions.outsiders import DAY
from bot.ci.extras.contributions.tables import contribution_day, contribution_pull
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.db.object_copies import ROW_SHAPES
from bot.db.table_copies import COPIED

if TYPE_CHECKING:
    from bot.db.exports import Row

NAME = "external_contribution_counts"


def copy_day(_export: Export, row: Row) -> list[StoredObject]:
    """Return a day as PyTorch's `upload_external_contrib_stats` stores it."""
    date = f"{datetime.fromtimestamp(row['day'] * DAY / 1000, UTC):%Y-%m-%d}"
    users: list[str] = row["users"]
    line: dict[str, Any] = {
        "date": date,
        "pr_count": row["pr_count"],
        "user_count": len(users),
        "users": users,
    }
    key = "/".join((NAME, object_key(date), repo_key(row["repo"])))
    return [StoredObject(key=key, content=lambda: (json_line(line),))]


EXPORTS = (
    Export(
        name=NAME,
        table=contribution_day,
        day=sa.cast(contribution_day.c.day, sa.BigInteger) * DAY,
        shapes={
            "upstream": Shape(make="bot.ci.extras.contributions.exports:copy_day", most=500),
            "clickhouse.ootbot": COPIED,
        },
    ),
    Export(name="contributions", table=contribution_pull, day="created_at", shapes=ROW_SHAPES),
)
