"""What people are told of sinks: a section of /admin, notes of /readyz, lines of `ootbot doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bot.core.feature import load
from bot.core.finding import Finding, error, ok, warning
from bot.sinks.driver import SinkAway, Stopped
from bot.sinks.masked import mask_credentials
from bot.sinks.settings import SinksSettings
from bot.sinks.standing import read_standings
from bot.sinks.store import refused_rows, visibility_rows
from bot.web import html
from bot.web.blocks import AdminSection

if TYPE_CHECKING:
    from aiohttp import web

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ops.doctor.target import Target
    from bot.sinks.settings import SinkSettings

SHOWN = 20  # refused rows
FOR_ADMIN = "see /admin or `ootbot sink list`"


def add_templates(app: web.Application) -> None:
    """Add the template of the section."""
    html.add_templates(app, Path(__file__).parent / "templates")


async def show_sinks(tx: Transaction, settings: Settings) -> AdminSection:
    """Return what the administrator's page says of sinks."""
    gone = list(await visibility_rows.withdrawn(tx))
    values = {
        "sinks": settings.of(SinksSettings).sinks,
        "standings": await read_standings(tx, settings),
        "refused": await refused_rows.list_refused(tx, limit=SHOWN),
        "withdrawn": gone,
    }
    return AdminSection(template="admin_sinks.html", values=values)


async def read_notes(tx: Transaction, settings: Settings, is_admin: bool) -> list[str]:
    """Return what needs attention; what another store says is for the administrator."""
    if not settings.of(SinksSettings).sinks:
        return []
    found = await read_standings(tx, settings)
    concerned = [one for one in found if one.words]
    return [f"sink {one.sink.name}: {one.what}: {one.words if is_admin else FOR_ADMIN}" for one in concerned]


async def check_sinks(target: Target) -> list[Finding]:
    """Check whether every sink can be written to."""
    return [await _check(sink) for sink in target.settings.of(SinksSettings).sinks]


async def _check(sink: SinkSettings) -> Finding:
    name = f"sink {sink.name}"
    if sink.paused:
        return warning(name, f"{sink.address}: paused by the settings", "remove `paused` to send again")
    driver = load(sink.kind.driver)(sink)
    try:
        await driver.check_access()
    except Stopped as problem:
        told = mask_credentials(f"{sink.address}: {problem}")
        return error(name, told, "create what is missing, then `ootbot sink resume`")
    except SinkAway as problem:
        todo = "check its address, and the credentials in the environment: docs/sinks.md"
        return error(name, mask_credentials(f"{sink.address}: {problem}"), todo)
    finally:
        await driver.close()
    return ok(name, f"{sink.address} can be written")
