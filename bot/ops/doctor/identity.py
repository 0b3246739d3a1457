"""Checks of an App on GitHub: its credentials, the clock, permissions, events and installations."""

from __future__ import annotations

import email.utils
from typing import TYPE_CHECKING, Any

import msgspec

from bot.core.errors import RetryLater
from bot.core.finding import Finding, error, ok, warning
from bot.core.links import web_url
from bot.github import enterprise_server, manifest
from bot.oot.allowlist.source import accounts

if TYPE_CHECKING:
    from bot.github.manifest import Manifest
    from bot.github.responses import Response
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.ops.doctor.target import AppUnderTest, Target

SKEW, TOO_MUCH = 10, 60  # seconds our clock may differ: GitHub and every OIDC token allow a minute


async def examine_identity(target: Target, app: AppUnderTest, allowlist: Allowlist | None) -> list[Finding]:
    """Check one App; stops where GitHub does not know it."""
    github, name = app.github, app.words
    headers = {"accept": "application/vnd.github+json"}
    try:
        answer = await github.request_as_app("GET", f"{github.api_url}/app", headers)
    except RetryLater as problem:
        return [error(name, str(problem), "check the network, proxies and GITHUB_API_URL")]
    found = [_clock(target, answer)]
    if answer.status != 200:
        todo = "check APP_ID and PRIVATE_KEY; after a wrong clock, set the time first"
        return [*found, error(name, f"GitHub answered {answer.status}: {_message(answer)}", todo)]
    if github.server_version:
        found.append(_server(github.server_version))
    registered = msgspec.json.decode(answer.body)
    wanted = app.wanted(allowlist)
    page = _settings_page(target, registered)
    found += [_permissions(name, wanted, registered, page), _events(name, wanted, registered, page)]
    settings = target.settings
    ours = accounts(settings.upstream_repo, allowlist, settings.allowlist)
    return found + await _installations(app, wanted, registered, ours)


def _server(version: str) -> Finding:
    """Say what is off on a GitHub Enterprise Server."""
    off = "; ".join(f"{lack.name}: {lack.off}" for lack in enterprise_server.lacking(version))
    return ok(
        "GitHub Enterprise Server", f"{version}; what github.com has and this lacks: {off or 'nothing'}"
    )


def _clock(target: Target, answer: Response) -> Finding:
    theirs = email.utils.parsedate_to_datetime(answer.headers["date"]) if "date" in answer.headers else None
    if theirs is None:
        return warning(
            "clock", "GitHub's answer has no date to compare with", "check that NTP sets the clock"
        )
    skew = target.clock.now() / 1000 - theirs.timestamp()
    detail = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} GitHub's"
    if abs(skew) > TOO_MUCH:
        return error("clock", detail, "set the time: tokens are refused from a minute on")
    return warning("clock", detail, "have NTP set the clock") if abs(skew) > SKEW else ok("clock", detail)


WITHOUT = "no comment is written and no command gets a reaction; checks and gate go on"


def _only_silences(lacks: list[str], granted: dict[str, str]) -> bool:
    """Whether nothing but the comment and reactions suffers from what is lacking."""
    return lacks == ["pull_requests: write"] and granted.get("pull_requests") == "read"


def _permissions(name: str, wanted: Manifest, registered: dict[str, Any], page: str) -> Finding:
    lacks = manifest.lacks(wanted.granted, registered["permissions"])
    if lacks:
        todo = f"add them at {page}/permissions"
        if _only_silences(lacks, registered["permissions"]):
            return warning(f"{name} permissions", f"not asked for: {lacks[0]}: {WITHOUT}", todo)
        return error(f"{name} permissions", f"not asked for: {', '.join(lacks)}", todo)
    if extra := manifest.unneeded(wanted.useful, registered["permissions"]):
        todo = f"take them away at {page}/permissions"
        return warning(f"{name} permissions", f"more than needed: {', '.join(extra)}", todo)
    return ok(f"{name} permissions", f"as in {_file(wanted)}")


def _events(name: str, wanted: Manifest, registered: dict[str, Any], page: str) -> Finding:
    missing = [event for event in wanted.events if event not in registered["events"]]
    if missing:
        todo = f"subscribe at {page}/permissions"
        return error(f"{name} events", f"not subscribed to {', '.join(missing)}", todo)
    return ok(f"{name} events", f"as in {_file(wanted)}")


async def _installations(
    app: AppUnderTest, wanted: Manifest, registered: dict[str, Any], accounts: set[str]
) -> list[Finding]:
    """Judge the installations of these accounts (case folded); anybody may install a public App."""
    name = f"{app.words} installations"
    path, query = "/app/installations{?per_page}", {"per_page": "100"}
    every = [each async for each in app.github.as_app().getiter(path, query)]
    ours = [each for each in every if _account(each).casefold() in accounts]
    found = [each for one in ours if (each := _refused(name, wanted, one))]
    if not ours:
        todo = f"install it: {registered['html_url']}/installations/new"
        return [
            error(name, "installed nowhere" if not every else "installed on no account that takes part", todo)
        ]
    if not found:
        found.append(ok(name, f"{len(ours)}, all with every permission and event"))
    if others := len(every) - len(ours):
        found.append(
            ok(name, f"{others} more of accounts that take no part: what they granted does not matter")
        )
    return found


def _refused(name: str, wanted: Manifest, one: dict[str, Any]) -> Finding | None:
    """Return what an installation lacks, None when nothing."""
    account, page = _account(one), one["html_url"]
    if one.get("suspended_at"):
        return error(name, f"suspended on {account}", f"unsuspend it at {page}")
    if lacks := manifest.lacks(wanted.granted, one["permissions"]):
        todo = f"an owner of {account} accepts the new permissions at {page}"
        if _only_silences(lacks, one["permissions"]):
            return warning(name, f"{account} has not granted {lacks[0]}: {WITHOUT}", todo)
        return error(name, f"{account} has not granted {', '.join(lacks)}", todo)
    if missing := [event for event in wanted.events if event not in one["events"]]:
        todo = f"an owner of {account} accepts the new events at {page}"
        return error(name, f"{account} is not subscribed to {', '.join(missing)}", todo)
    return None


def _account(installation: dict[str, Any]) -> str:
    return str((installation.get("account") or {}).get("login", "?"))


def _settings_page(target: Target, registered: dict[str, Any]) -> str:
    owner = registered.get("owner") or {}
    account = f"/organizations/{owner.get('login')}" if owner.get("type") == "Organization" else ""
    return f"{web_url(target.settings.github_api_url)}{account}/settings/apps/{registered['slug']}"


def _file(wanted: Manifest) -> str:
    return " and ".join(manifest.FILES.values()) if wanted.role == "one" else manifest.FILES[wanted.role]


def _message(answer: Response) -> str:
    try:
        return str(msgspec.json.decode(answer.body).get("message", ""))[:200]
    except (msgspec.DecodeError, AttributeError):
        return answer.body[:100].decode("utf-8", "replace")
