"""Checks of this machine: unwise settings, key files, disk space."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from bot.core import presets
from bot.core.disk import GB, LITTLE, TOO_LITTLE, free_bytes
from bot.core.errors import OotbotError
from bot.core.finding import Finding, error, ok, warning
from bot.core.setting_types import LOOPBACK
from bot.core.settings import Settings, options
from bot.ops.doctor import database, identity, participants, webhook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
    from pathlib import Path

    from bot.oot.allowlist.allowlist import Allowlist
    from bot.ops.doctor.target import Target

GROUP, OTHERS = stat.S_IRWXG, stat.S_IRWXO


def settings(chosen: Settings, warnings: Sequence[str]) -> list[Finding]:
    """Check the options as a whole."""
    found = [warning("settings", each, "correct or remove it") for each in warnings]
    if chosen.public_url is None and chosen.host in LOOPBACK and not chosen.pulls:
        todo = "set PUBLIC_URL, or RECEIVE=pull where GitHub cannot reach this machine"
        found.append(warning("settings", f"links and callbacks point to {chosen.url}", todo))
    if chosen.admin_token is None:
        todo = "set ADMIN_TOKEN to a long random text"
        found.append(warning("settings", "ADMIN_TOKEN is unset: /api/admin is closed", todo))
    return found or [ok("settings", f"complete; upstream is {', '.join(chosen.upstream_repo)}")]


def preset(chosen: Settings) -> list[Finding]:
    """Say what the preset sets, and what an own setting sets otherwise."""
    if chosen.preset is None:
        return []
    listed, fields = presets.read_presets()[chosen.preset], options(Settings)
    own = {
        name for name, text in listed.items() if getattr(chosen, name) != fields[name].metadata["read"](text)
    }
    said = [f"{name.upper()}={text}" for name, text in listed.items() if name not in own]
    said += [f"{name.upper()} is set by its own name, which counts" for name in listed if name in own]
    return [ok("preset", f"{chosen.preset}: {'; '.join(said)}")]


def keys(files: Iterable[Path]) -> list[Finding]:
    """Check who may read the files that hold secrets.

    The mode cannot be changed on a read-only mount: there a container's group may read.
    """
    found = []
    for path in files:
        fixed = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
        if stat.S_IMODE(path.stat().st_mode) & (OTHERS if fixed else GROUP | OTHERS):
            found.append(warning("key", f"{path} can be read by others", f"chmod 600 {path}"))
        else:
            found.append(ok("key", f"{path} is private"))
    return found or [ok("key", "given by the environment")]


def disk(folder: Path) -> Finding:
    """Check the free disk space."""
    free = free_bytes(folder)
    if free is None:
        return error("disk", f"{folder} cannot be read", "check DATA_DIR and who may read it")
    detail = f"{free / GB:.1f} GB free at {folder}"
    if free < TOO_LITTLE:
        return error("disk", detail, "free space now: deliveries are refused when the disk is full")
    if free < LITTLE:
        todo = "move backups elsewhere; a lower RAW_RETENTION_DAYS stops growth, VACUUM while stopped returns space"
        return warning("disk", detail, todo)
    return ok("disk", detail)


async def everything(target: Target) -> AsyncIterator[Finding]:
    """Yield the findings as they are made."""
    for each in await _here(target):
        yield each
    finding, listed = await participants.allowlist(target)
    yield finding
    for each in participants.overlaps(target.settings, listed) if listed else ():
        yield each
    for app in target.apps:
        found = await _tried(app.words, identity.examine_identity(target, app, listed))
        for each in found:
            yield each
        if any(each.name == app.words for each in found):
            return  # GitHub cannot be reached: the rest would only repeat it
    async for each in _with_github(target, listed):
        yield each


async def _here(target: Target) -> list[Finding]:
    """Run the checks that need no network."""
    finding, readable = await database.usable(target)
    found = [disk(target.settings.data_dir), finding]
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
    checks += [(f"{app.words} webhook", webhook.examine_webhook(target, app)) for app in target.apps]
    for name, check in checks:
        for each in await _tried(name, check):
            yield each


async def _tried(name: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await check
    except OotbotError as problem:
        return [error(name, str(problem)[:300], "try again; see the log of `ootbot serve`")]
