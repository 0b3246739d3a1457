"""GET /{owner}/{repo}/disabled/suggestions: tests that could be disabled, and issues that could be closed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from bot.ci.disabled import lists
from bot.ci.disabled import rows as disabled_rows
from bot.ci.disabled.settings import DisabledSettings
from bot.ci.test_lists import rerun_rows, rows, slow, suggestion_rows, suggestions
from bot.ci.test_results.rows import DAY
from bot.ci.trunk import reading
from bot.core.errors import Rejected
from bot.core.links import web_url
from bot.web import access, parameters
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render

if TYPE_CHECKING:
    from aiohttp import web

TEMPLATES = Path(__file__).parent / "templates"
ADDRESS = r"/{owner:(?!(?:oot|hud|api|admin|static)/)[^{}/]+}/{repo}/disabled/suggestions"
WEEK = 7 * DAY
SHOWN = 100


@page
async def show(request: web.Request) -> web.Response:
    """Show what the evidence of trusted jobs suggests."""
    context = request.app[CONTEXT]
    if context.settings.of(DisabledSettings).ci_disable != "suggest":
        raise Rejected(404, "not_found", "suggestions are off: set CI_DISABLE=suggest to see some")
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        repository = (await reading.find(tx, hidden, parameters.repo(request), "")).repository
        identifier, now = repository["repository_id"], tx.now
        issues = await disabled_rows.disabling(tx, identifier)
        devices = await disabled_rows.devices(tx)
        flaky = await suggestion_rows.flaky(tx, identifier, since=now - WEEK, devices=devices)
        places = await rows.places(tx, {one.test_id for one in flaky})
        again = await rerun_rows.since(tx, identifier, now - WEEK)
    where: defaultdict[str, set[str]] = defaultdict(set)
    for one in flaky:
        if place := places.get(one.test_id):
            where[slow.key(place.name, place.suite)] |= {*one.platforms, ""}
    listed = lists.disabled_tests(issues)
    disable = suggestions.to_disable(flaky, places, listed, now)
    repo, web_address = repository["full_name"], web_url(context.settings.github_api_url)
    return render(
        request,
        "suggestions.html",
        fresh=parameters.of(request),
        repo=repo,
        disable=[(one, suggestions.link(web_address, repo, one)) for one in disable[:SHOWN]],
        more=max(len(disable) - SHOWN, 0),
        close=suggestions.to_close(issues, again, where, now),
        rules=suggestions,
        json_url="",
    )
