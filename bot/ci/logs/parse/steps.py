"""The step of a job that a line of its log belongs to. The log does not say; the times of the steps do."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from bot.core import json_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS_MOST = 1000


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a job, as GitHub's workflow_job has it."""

    name: str
    number: int = 0
    started_at: str | None = None


json_fields.learn(Step)


def steps_of(stored: object) -> tuple[Step, ...]:
    """Return the steps of a job record, which are GitHub's JSON."""
    steps = []
    for one in stored[:STEPS_MOST] if isinstance(stored, list) else ():
        try:
            steps.append(msgspec.convert(one, Step))
        except msgspec.ValidationError:
            continue
    return tuple(steps)


def step_of(steps: Sequence[Step], at: int | None) -> str | None:
    """Return the name of the last step that had begun at a time in epoch milliseconds, which has whole seconds."""
    if at is None:
        return None
    begun = [(begin, step.number, step.name) for step in steps if (begin := _seconds(step)) is not None]
    started = [one for one in begun if one[0] <= at // 1000]
    return max(started)[2] if started else None


def _seconds(step: Step) -> int | None:
    try:
        return int(datetime.fromisoformat(step.started_at or "").timestamp())
    except (ValueError, OverflowError):
        return None
