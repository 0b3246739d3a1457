"""The one list of capabilities. `bot.app` and the console read it and pass it on; tests pass lists of their own."""

from __future__ import annotations

from bot.core.feature import Feature
from bot.evidence.collect.feature import FEATURE as COLLECT
from bot.evidence.disabled.feature import FEATURE as DISABLED
from bot.evidence.logs.feature import FEATURE as LOGS
from bot.evidence.tests.feature import FEATURE as TESTS
from bot.evidence.usage.feature import FEATURE as USAGE
from bot.ingest.feature import FEATURE as INGEST
from bot.job_reports.feature import FEATURE as JOB_REPORTS
from bot.jobs.feature import FEATURE as JOBS
from bot.notify.feature import FEATURE as NOTIFY
from bot.oot.culprits.feature import FEATURE as CULPRITS
from bot.oot.feature import FEATURE as OOT
from bot.ops.feature import FEATURE as OPS
from bot.pages.feature import FEATURE as PAGES
from bot.providers.feature import FEATURE as PROVIDERS
from bot.sinks.feature import FEATURE as SINKS

KERNEL = Feature(
    name="queue",
    tables=("bot.db.word_index", "bot.queue.tasks"),
    tasks={"sum": "bot.queue.sums:recount_place"},
    background=frozenset({"sum"}),
)


FEATURES = (
    KERNEL,
    INGEST,
    OOT,
    COLLECT,
    JOBS,
    PROVIDERS,
    PAGES,
    DISABLED,
    LOGS,
    TESTS,
    USAGE,
    CULPRITS,
    NOTIFY,
    SINKS,
    JOB_REPORTS,
    OPS,
)
