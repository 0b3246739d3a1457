"""Forms of the administrator: begin a search from the grid or a failure's page, cancel one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.db.store import LOCK_TIMEOUT
from bot.oot.culprits import command
from bot.oot.culprits.refused import Refused
from bot.oot.culprits.start import Wanted, cancel_search
from bot.web.app_keys import CONTEXT
from bot.web.blocks import ADMINISTRATOR, FormDone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

FIELD_MOST = 500  # characters


async def begin_search(request: web.Request, fields: Mapping[str, str]) -> FormDone:
    """Begin a search, and show its page."""
    given = {name: value.strip()[:FIELD_MOST] for name, value in fields.items()}
    wanted = Wanted(
        repo=given.get("repo", ""),
        backend=given.get("backend", "") or "upstream",
        what=given.get("what", ""),
        signature=given.get("signature", ""),
        branch=given.get("branch", ""),
        good=given.get("good", ""),
        bad=given.get("bad", ""),
        by=ADMINISTRATOR,
        reason=given.get("reason", ""),
    )
    try:
        started = await command.begin(request.app[CONTEXT], wanted)
    except Refused as reason:
        return FormDone(words=f"no search was started: {reason}")
    return FormDone(path=f"/{started.row['upstream_repo']}/bisects/{started.row['id']}")


async def cancel(request: web.Request, _fields: Mapping[str, str]) -> FormDone:
    """Cancel a search, and show its page."""
    identifier = request.match_info["id"][:40]
    try:
        async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
            row = await cancel_search(tx, identifier, by=ADMINISTRATOR)
    except Refused as reason:
        return FormDone(words=str(reason))
    return FormDone(path=f"/{row['upstream_repo']}/bisects/{row['id']}")
