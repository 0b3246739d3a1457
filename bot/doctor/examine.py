"""In which order is everything looked at? What needs the network comes last; one failure does not hide the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.doctor import database, door, identity, issuers, local, taking_part
from bot.doctor.finding import Finding, error
from bot.errors import OotbotError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from bot.doctor.patient import Patient
    from bot.domain.allowlist import Allowlist


async def everything(patient: Patient) -> AsyncIterator[Finding]:
    """Yield what is found, as it is found."""
    for each in await _here(patient):
        yield each
    finding, listed = await taking_part.allowlist(patient)
    yield finding
    for app in patient.apps:
        found = await _tried(app.words, identity.of(patient, app, listed))
        for each in found:
            yield each
        if any(each.name == app.words for each in found):
            return  # GitHub cannot be asked: the rest would only say so again
    async for each in _with_github(patient, listed):
        yield each


async def _here(patient: Patient) -> list[Finding]:
    """Look at what needs no network."""
    finding, readable = await database.usable(patient)
    found = [local.disk(patient.settings.data_dir), finding]
    if readable:
        found += await _tried("database clock", database.clock(patient))
        found += await _tried("activity", database.activity(patient))
    return found


async def _with_github(patient: Patient, listed: Allowlist | None) -> AsyncIterator[Finding]:
    looks = [("upstream", taking_part.upstream(patient))]
    if listed is not None:
        looks.append(("backends", taking_part.backends(patient, listed)))
    looks += [("issuer", issuers.all_of(patient)), ("server", door.ready(patient))]
    looks += [(f"{app.words} webhook", door.of(patient, app)) for app in patient.apps]
    for name, look in looks:
        for each in await _tried(name, look):
            yield each


async def _tried(name: str, looking: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await looking
    except OotbotError as problem:
        return [error(name, str(problem)[:300], "try again; see the log of `ootbot serve`")]
