"""What the parser child says of a usage log: columns of its row, and what only the log itself claims."""

from __future__ import annotations

from typing import TypedDict

from bot.ci.utilization.tables import LogRow


class ParsedLog(TypedDict):
    """A usage log, measured."""

    row: LogRow
    claims: tuple[str, str]  # the ids of run and job that the log names, empty where it names none
    first_at: int | None  # seconds; the first of the records
