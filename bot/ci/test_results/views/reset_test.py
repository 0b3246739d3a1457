"""POST /admin/tests/{owner}/{repo}/{id}/reset: call a test mended, as `ootbot tests reset` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.ci.test_results.store import evaluate_states, result_rows
from bot.core.errors import Rejected
from bot.db.store import LOCK_TIMEOUT
from bot.ingest import watched
from bot.web import parameters
from bot.web.app_keys import CONTEXT
from bot.web.blocks import ADMINISTRATOR, FormDone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

log = structlog.get_logger("bot.ci.test_results.views.reset_test")


async def reset(request: web.Request, _fields: Mapping[str, str]) -> FormDone:
    """Call a test mended in all environments, and show its page again."""
    repo, digest = parameters.repo(request), request.match_info["digest"]
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        found = await result_rows.test_by_digest(tx, await watched.ids(tx, repo), digest)
        if found is None:
            raise Rejected(404, "unknown_test", f"no test of that id is known in {repo}")
        await evaluate_states.reset_test(tx, found["repository_id"], found["id"], by=ADMINISTRATOR)
    log.info("test reset", repo=repo, test=digest, by=ADMINISTRATOR)
    return FormDone(path=f"/{repo}/test/{digest}")
