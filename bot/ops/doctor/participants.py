"""Checks of participants: the allowlist, and the App's installation on upstream and every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from bot.core.errors import GitHubRefused, RetryLater
from bot.core.finding import Finding, error, ok, warning
from bot.oot.allowlist import allowlist as allowlist_file
from bot.oot.allowlist import source as source_file
from bot.oot.allowlist.entry import Level

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.oot.allowlist.allowlist import Allowlist, Entry
    from bot.ops.doctor.target import AppUnderTest, Target


async def allowlist(target: Target) -> tuple[Finding, Allowlist | None]:
    """Read the allowlist as the bot would."""
    source, default_events = target.settings.allowlist, frozenset(target.settings.default_events)
    try:
        found = allowlist_file.parse(await source_file.read_source(source, target.app_for), default_events)
    except RetryLater as problem:
        return error(
            "allowlist", f"{source} cannot be read: {problem}", "check the network and try again"
        ), None
    except source_file.NoText as problem:
        return error("allowlist", f"{source} cannot be read: {problem}", "check ALLOWLIST"), None
    except allowlist_file.AllowlistError as problem:
        first, *more = map(str, problem.problems)
        detail = f"{source}: {first}" + (f" (and {len(more)} more)" if more else "")
        return error(
            "allowlist", detail, "`ootbot allowlist check FILE` lists everything that is wrong"
        ), None
    if not found.entries:
        return warning(
            "allowlist", f"{source}: no backend takes part", "list a backend: docs/allowlist.md"
        ), found
    return ok("allowlist", f"{source}: {len(found.entries)} backends"), found


def overlaps(settings: Settings, listed: Allowlist) -> list[Finding]:
    """Name settings and terms that overlap, and which of them counts."""
    by_job = settings.check_names == "crcr"
    entries = listed.entries if by_job else ()
    found = [
        (
            f"`checks: jobs` of {entry.repo} adds nothing: CHECK_NAMES=crcr counts",
            "remove it from the allowlist",
        )
        for entry in entries
        if entry.checks == "jobs"
    ]
    found += [
        (
            f"`conclusion` of {entry.repo} adds nothing: with CHECK_NAMES=crcr jobs conclude as reported",
            "remove it from the allowlist",
        )
        for entry in entries
        if entry.level == Level.L3 and entry.conclusion == "failure"
    ]
    found += [
        (
            f"the `audiences` of {issuer.issuer} count for its tokens, not OIDC_AUDIENCE",
            "add the audience its backends use, or remove `audiences`",
        )
        for issuer in settings.oidc_issuers
        if issuer.audiences and not set(settings.oidc_audience) <= set(issuer.audiences)
    ]
    own = [entry.repo for entry in listed.entries if entry.actions is not None]
    noted = [ok("overlap", f"`actions` of {', '.join(own)} count there, not PULL_ACTIONS")] if own else []
    return [*(warning("overlap", detail, todo) for detail, todo in found), *noted]


async def upstream(target: Target) -> list[Finding]:
    """Check that the App is on upstream."""
    return [
        ok("upstream", f"the App is on {repo}")
        if await _installed(target.upstream, repo)
        else error(
            "upstream", f"the App is not on {repo}, or there is no such repository", "install it there"
        )
        for repo in target.settings.upstream_repo
    ]


async def backends(target: Target, listed: Allowlist) -> list[Finding]:
    """Check that the App is on every listed backend."""
    missing = [entry for entry in listed.entries if not await _installed(target.relay, entry.repo)]
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
