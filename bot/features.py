"""The one list of capabilities. `bot.app` and the console read it and pass it on; tests pass lists of their own."""

from __future__ import annotations

from bot.ci.collect.feature import FEATURE as COLLECT
from bot.ci.disabled.feature import FEATURE as DISABLED
from bot.ci.extras.benchmarks.feature import FEATURE as BENCHMARKS
from bot.ci.extras.caches.feature import FEATURE as CACHES
from bot.ci.extras.contributions.feature import FEATURE as CONTRIBUTIONS
from bot.ci.extras.feature import FEATURE as EXTRAS
from bot.ci.extras.metrics.feature import FEATURE as METRICS
from bot.ci.extras.partial.feature import FEATURE as PARTIAL
from bot.ci.extras.stable.feature import FEATURE as STABLE
from bot.ci.extras.what_ran.feature import FEATURE as WHAT_RAN
from bot.ci.logs.feature import FEATURE as LOGS
from bot.ci.test_lists.feature import FEATURE as TEST_LISTS
from bot.ci.test_results.feature import FEATURE as TEST_RESULTS
from bot.ci.trunk.feature import FEATURE as TRUNK
from bot.ci.utilization.feature import FEATURE as UTILIZATION
from bot.ingest.feature import FEATURE as INGEST
from bot.notify.feature import FEATURE as NOTIFY
from bot.oot.allowlist.feature import FEATURE as ALLOWLIST
from bot.oot.commands.feature import FEATURE as COMMANDS
from bot.oot.culprits.feature import FEATURE as CULPRITS
from bot.oot.dispatch.feature import FEATURE as DISPATCH
from bot.oot.pages.feature import FEATURE as PAGES
from bot.oot.publish.feature import FEATURE as PUBLISH
from bot.oot.reports.feature import FEATURE as REPORTS
from bot.oot.results.feature import FEATURE as RESULTS
from bot.oot.statistics.feature import FEATURE as STATISTICS
from bot.oot.verdict.feature import FEATURE as VERDICT
from bot.ops.feature import FEATURE as OPS
from bot.providers.feature import FEATURE as PROVIDERS
from bot.queue.feature import FEATURE as QUEUE
from bot.red.feature import FEATURE as RED
from bot.sinks.feature import FEATURE as SINKS
from bot.word_index.feature import FEATURE as WORD_INDEX

FEATURES = (
    WORD_INDEX,
    QUEUE,
    INGEST,
    ALLOWLIST,
    RESULTS,
    STATISTICS,
    VERDICT,
    REPORTS,
    DISPATCH,
    PUBLISH,
    COMMANDS,
    COLLECT,
    TRUNK,
    PROVIDERS,
    PAGES,
    RED,
    DISABLED,
    LOGS,
    TEST_RESULTS,
    TEST_LISTS,
    UTILIZATION,
    CULPRITS,
    NOTIFY,
    SINKS,
    EXTRAS,
    CACHES,
    METRICS,
    BENCHMARKS,
    WHAT_RAN,
    CONTRIBUTIONS,
    STABLE,
    PARTIAL,
    OPS,
)
