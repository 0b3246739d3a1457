"""The order of the checks: those that need the network come last; one failure does not hide the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import OotbotError
from bot.core.finding import Finding, error
from bot.ops.doctor import database, identity, local, participants, webhook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from bot.oot.allowlist.allowlist import Allowlist
    from bot.ops.doctor.target import Target


async def everything(target: Target) -> AsyncIterator[Finding]:
    """Yield the findings as they are made."""
    for each in await _here(target):
        yield each
    finding, listed = await participants.allowlist(target)
    yield finding
    for app in target.apps:
        found = await _tried(app.words, identity.of(target, app, listed))
        for each in found:
            yield each
        if any(each.name == app.words for each in found):
            return  # GitHub cannot be reached: the rest would only repeat it
    async for each in _with_github(target, listed):
        yield each


async def _here(target: Target) -> list[Finding]:
    """Run the checks that need no network."""
    finding, readable = await database.usable(target)
    found = [local.disk(target.settings.data_dir), finding]
    if readable:
        found += await _tried("database clock", database.clock(target))
        found += await _tried("activity", database.activity(target))
    return found


async def _with_github(target: Target, listed: Allowlist | None) -> AsyncIterator[Finding]:
    checks: list[tuple[str, Awaitable[list[Finding]]]] = [("upstream", participants.upstream(target))]
    if listed is not None:
        checks.append(("backends", participants.backends(target, listed)))
    checks.extend((name, run(target)) for name, run in target.checks)
    checks += [("server", webhook.ready(target))]
    checks += [(f"{app.words} webhook", webhook.of(target, app)) for app in target.apps]
    for name, check in checks:
        for each in await _tried(name, check):
            yield each


async def _tried(name: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await check
    except OotbotError as problem:
        return [error(name, str(problem)[:300], "try again; see the log of `ootbot serve`")]
