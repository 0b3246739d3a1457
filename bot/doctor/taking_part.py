"""Who takes part, and is the App there? The allowlist, upstream and every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from bot import allowlist_text
from bot.doctor.finding import Finding, error, ok, warning
from bot.domain import allowlist as allowlist_file
from bot.errors import GitHubRefused, RetryLater

if TYPE_CHECKING:
    from bot.doctor.patient import AppUnderTest, Patient
    from bot.domain.allowlist import Allowlist, Entry


async def allowlist(patient: Patient) -> tuple[Finding, Allowlist | None]:
    """Read the allowlist as the bot would."""
    source = patient.settings.allowlist
    try:
        found = allowlist_file.parse(await allowlist_text.read(source, patient.app_for))
    except RetryLater as problem:
        return error(
            "allowlist", f"{source} cannot be read: {problem}", "check the network and try again"
        ), None
    except allowlist_text.NoText as problem:
        return error("allowlist", f"{source} cannot be read: {problem}", "check ALLOWLIST"), None
    except allowlist_file.AllowlistError as problem:
        first, *more = map(str, problem.problems)
        detail = f"{source}: {first}" + (f" (and {len(more)} more)" if more else "")
        return error(
            "allowlist", detail, "`ootbot allowlist check FILE` lists everything that is wrong"
        ), None
    if not found.entries:
        return warning(
            "allowlist", f"{source}: nobody takes part", "list a backend: docs/allowlist.md"
        ), found
    return ok("allowlist", f"{source}: {len(found.entries)} backends"), found


async def upstream(patient: Patient) -> list[Finding]:
    """Look whether the App is on upstream."""
    return [
        ok("upstream", f"the App is on {repo}")
        if await _installed(patient.upstream, repo)
        else error(
            "upstream", f"the App is not on {repo}, or there is no such repository", "install it there"
        )
        for repo in patient.settings.upstream_repo
    ]


async def backends(patient: Patient, listed: Allowlist) -> list[Finding]:
    """Look whether the App is on every backend that is listed."""
    missing = [entry for entry in listed.entries if not await _installed(patient.relay, entry.repo)]
    if not missing:
        return [ok("backends", f"the App is on all {len(listed.entries)}")] if listed.entries else []
    return [_missing(entry) for entry in missing]


def _missing(entry: Entry) -> Finding:
    detail = f"the App is not on {entry.repo} (L{entry.level})"
    todo = "its owner installs it there, or the allowlist gets its present name, or loses the entry"
    blocks = entry.level == allowlist_file.Level.L4
    return (
        error("backends", detail + ": the gate cannot turn green", todo)
        if blocks
        else warning("backends", detail, todo)
    )


async def _installed(app: AppUnderTest, repo: str) -> bool:
    owner, _, name = repo.partition("/")
    try:
        await app.github.as_app().getitem(
            f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}/installation"
        )
    except GitHubRefused:
        return False
    return True
