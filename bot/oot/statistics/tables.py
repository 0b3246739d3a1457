"""Tables of daily sums by backend, of why jobs failed, and of what they are called."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bytes, Default, Int, Json, Millis, Text, table


@dataclass(frozen=True, kw_only=True, slots=True)
class DayOfBackend:
    """Which day of which backend it is, by upstream repository and kind of event."""

    backend_key: Text  # case folded
    day: Int  # days since 1970, UTC
    upstream_key: Text  # case folded too; by it, private upstreams are left out
    event_type: Text
    backend: Text  # spelled as in its newest row
    level: Int


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Runs by outcome, and dispatches without a report by reason."""

    runs: Big = 0  # one job of one workflow run at its latest attempt; the sum of all up to `running`
    success: Big = 0
    failure: Big = 0  # also action_required, startup_failure and stale
    timed_out: Big = 0
    cancelled: Big = 0
    skipped: Big = 0
    neutral: Big = 0
    running: Big = 0
    never_started: Big = 0  # dispatches sent and never reported on
    # an older version writes days without what has a default
    not_run: Annotated[Big, Default("0")] = 0  # the same, of backends that need not answer
    not_dispatched: Big = 0  # dispatches GitHub refused, or without the App on the backend
    superseded: Big = 0  # dispatches dropped for a newer commit before they were sent
    infra: Annotated[Big, Default("0")] = 0  # failures and timeouts whose log says that it was infrastructure

    @property
    def rated(self) -> int:
        """How many outcomes the pass rate is made of."""
        return self.success + self.failure + self.timed_out + self.never_started


class DayTimes(TypedDict):
    """Histograms of times, see bot.oot.statistics.histogram."""

    execution: Bytes
    queue: Bytes
    whole: Bytes


class DayHours(TypedDict):
    """Outcomes that enter the pass rate, by hour."""

    hours: Json[dict[str, list[int]]]  # hour -> [rated, success]


class DayWritten(TypedDict):
    """When the last report came, and when the row was written."""

    last_at: Millis
    written_at: Millis


HISTOGRAMS = tuple(DayTimes.__annotations__)
COUNTS = tuple(field.name for field in fields(Counts))
_DAY = ("backend_key", "day", "upstream_key", "event_type")
oot_day = table("oot_day", DayOfBackend, Counts, DayTimes, DayHours, DayWritten, key=_DAY)
sa.Index("ix_oot_day_day", oot_day.c.day, oot_day.c.written_at, oot_day.c.backend_key)


class FailureKindRow(TypedDict):
    """Why a job failed, where its log was read and says so."""

    job_key: Text  # of oot_workflow_job
    kind: Text


class JobNameRow(TypedDict):
    """What a backend calls a job."""

    backend_key: Text  # case folded
    upstream_key: Text  # whose commits it is about, case folded
    workflow: Text
    job: Text
    backend: Text  # spelled as in its newest report
    last_at: Millis  # its newest report


oot_job_name = table("oot_job_name", JobNameRow, key=("backend_key", "upstream_key", "workflow", "job"))
sa.Index("ix_oot_job_name_newest", oot_job_name.c.last_at)

oot_failure_kind = table("oot_failure_kind", FailureKindRow, key=("job_key",))
