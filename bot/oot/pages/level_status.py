"""GET /api/crcr/level-status: which L3 backends should change their level, as the relay's workflow asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aiohttp import web
from msgspec import Struct

from bot.oot.allowlist import rows as allowlists
from bot.oot.allowlist.entry import Level
from bot.oot.pages.backend_parameters import NOTHING
from bot.oot.pages.crcr_answers import crcr_operation, send
from bot.oot.pages.relay_criteria import measure_backend
from bot.oot.statistics.relay_criteria import DEMOTION_DAYS, judge_demotion
from bot.web.asked import asking
from bot.web.render_thread import in_render_thread
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.oot.statistics.relay_criteria import Measures


class CriterionStatus(Struct, frozen=True):
    """One criterion of a backend; `met` is null where there is nothing to judge"""

    criterion: str
    measured: str
    target: str
    met: bool | None


class BackendStatus(Struct, frozen=True, rename="camel"):
    """An L3 backend by the criteria for staying there"""

    repo: str
    level: str
    change: Literal["demote"] | None
    no_data: bool
    window_days: int
    criteria: list[CriterionStatus]
    shared_failures: int  # that upstream's own jobs share: they do not count


class LevelStatus(Struct, frozen=True):
    """The L3 backends of the allowlist in force"""

    repos: list[BackendStatus]


@in_render_thread
async def send_level_status(request: web.Request) -> web.Response:
    """Answer with the L3 backends and whether each should be demoted; silence alone demotes nobody."""
    async with asking(request, ()) as asked:
        asked.hidden.check_upstream(asked.settings)
        in_force = await allowlists.in_force(asked.tx)
        found = [
            _status(
                entry.repo,
                await measure_backend(asked.tx, entry, days=DEMOTION_DAYS, hidden=asked.hidden.names),
            )
            for entry in (in_force.at(Level.L3) if in_force else ())
        ]
    return send(LevelStatus(repos=found))


def _status(repo: str, found: Measures) -> BackendStatus:
    criteria = judge_demotion(found)
    return BackendStatus(
        repo=repo,
        level="L3",
        change="demote" if any(one.met is False for one in criteria) else None,
        no_data=not found.jobs,
        window_days=DEMOTION_DAYS,
        criteria=[CriterionStatus(one.name, one.measured, one.target, one.met) for one in criteria],
        shared_failures=found.shared,
    )


ENDPOINT = Endpoint(
    web.get("/api/crcr/level-status", send_level_status),
    crcr_operation(
        "/api/crcr/level-status",
        "crcrLevelStatus",
        "L3 backends and whether to demote them",
        LevelStatus,
        refusals=(NOTHING,),
    ),
)
