"""Checks at GitHub: an App's credentials, permissions, events and installations, and the participants.

Participants are upstream and the backends of the allowlist: the App has to be installed on each.
"""

from __future__ import annotations

import email.utils
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from bot.core.errors import GitHubRefused, RetryLater
from bot.core.escaping import web_url
from bot.core.feature import Finding, error, ok, warning
from bot.github import manifest, responses
from bot.oot.allowlist import allowlist as allowlist_file
from bot.oot.allowlist.allowlist import known_accounts
from bot.oot.allowlist.entry import Level
from bot.oot.allowlist.yaml_document import AllowlistError

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.github.manifest import Manifest
    from bot.github.responses import Response
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.ops.doctor import AppUnderTest, Target

SKEW, TOO_MUCH = 10, 60  # seconds our clock may differ: GitHub and every OIDC token allow a minute
WITHOUT = "no comment is written and no command gets a reaction; checks and gate go on"


async def examine_identity(target: Target, app: AppUnderTest, allowlist: Allowlist | None) -> list[Finding]:
    """Check one App; stops where GitHub does not know it."""
    github, name = app.github, app.words
    headers = {"accept": "application/vnd.github+json"}
    try:
        answer = await github.request_as_app("GET", f"{github.api_url}/app", headers)
    except RetryLater as problem:
        return [error(name, str(problem), "check the network, proxies and GITHUB_API_URL")]
    findings = [_check_clock(target, answer)]
    if answer.status != 200:
        todo = "check APP_ID and PRIVATE_KEY; after a wrong clock, set the time first"
        return [*findings, error(name, f"GitHub answered {answer.status}: {_message_of(answer)}", todo)]
    if github.server_version:
        findings.append(_check_server(github.server_version))
    registered = msgspec.json.decode(answer.body)
    wanted = app.wanted(allowlist)
    page = _settings_page(target, registered)
    findings += [
        _check_permissions(name, wanted, registered, page),
        _check_events(name, wanted, registered, page),
    ]
    settings = target.settings
    ours = known_accounts(settings.upstream_repo, allowlist, settings.allowlist)
    return findings + await _check_installations(app, wanted, registered, ours)


async def check_allowlist(target: Target) -> tuple[Finding, Allowlist | None]:
    """Read the allowlist as the bot would."""
    source, default_events = target.settings.allowlist, frozenset(target.settings.default_events)
    try:
        parsed = allowlist_file.parse_allowlist(
            await allowlist_file.read_source(source, target.app_for), default_events
        )
    except RetryLater as problem:
        return error(
            "allowlist", f"{source} cannot be read: {problem}", "check the network and try again"
        ), None
    except allowlist_file.NoAllowlistText as problem:
        return error("allowlist", f"{source} cannot be read: {problem}", "check ALLOWLIST"), None
    except AllowlistError as problem:
        first, *more = map(str, problem.problems)
        detail = f"{source}: {first}" + (f" (and {len(more)} more)" if more else "")
        return error(
            "allowlist", detail, "`ootbot allowlist check FILE` lists everything that is wrong"
        ), None
    if not parsed.entries:
        return warning(
            "allowlist", f"{source}: no backend takes part", "list a backend: docs/allowlist.md"
        ), parsed
    return ok("allowlist", f"{source}: {len(parsed.entries)} backends"), parsed


def check_overlaps(settings: Settings, listed: Allowlist) -> list[Finding]:
    """Name overlapping settings and entries, and say which of them counts."""
    by_job = settings.check_names == "crcr"
    entries = listed.entries if by_job else ()
    problems = [
        (
            f"`checks: jobs` of {entry.repo} adds nothing: CHECK_NAMES=crcr counts",
            "remove it from the allowlist",
        )
        for entry in entries
        if entry.checks == "jobs"
    ]
    problems += [
        (
            f"`conclusion` of {entry.repo} adds nothing: with CHECK_NAMES=crcr jobs conclude as reported",
            "remove it from the allowlist",
        )
        for entry in entries
        if entry.level == Level.L3 and entry.conclusion == "failure"
    ]
    problems += [
        (
            f"the `audiences` of {issuer.issuer} count for its tokens, not OIDC_AUDIENCE",
            "add the audience its backends use, or remove `audiences`",
        )
        for issuer in settings.oidc_issuers
        if issuer.audiences and not set(settings.oidc_audience) <= set(issuer.audiences)
    ]
    own = [entry.repo for entry in listed.entries if entry.actions is not None]
    noted = [ok("overlap", f"`actions` of {', '.join(own)} count there, not PULL_ACTIONS")] if own else []
    return [*(warning("overlap", detail, todo) for detail, todo in problems), *noted]


async def check_upstream(target: Target) -> list[Finding]:
    """Check that the App is installed on upstream."""
    return [
        ok("upstream", f"the App is on {repo}")
        if await _is_installed(target.upstream, repo)
        else error(
            "upstream", f"the App is not on {repo}, or there is no such repository", "install it there"
        )
        for repo in target.settings.upstream_repo
    ]


async def check_backends(target: Target, listed: Allowlist) -> list[Finding]:
    """Check that the App is installed on every listed backend."""
    missing = [entry for entry in listed.entries if not await _is_installed(target.relay, entry.repo)]
    if not missing:
        return [ok("backends", f"the App is on all {len(listed.entries)}")] if listed.entries else []
    return [_not_installed(entry) for entry in missing]


def _check_server(version: str) -> Finding:
    """Say which features are off on a GitHub Enterprise Server."""
    off = "; ".join(f"{lack.name}: {lack.off}" for lack in responses.lacking(version))
    return ok(
        "GitHub Enterprise Server", f"{version}; what github.com has and this lacks: {off or 'nothing'}"
    )


def _check_clock(target: Target, answer: Response) -> Finding:
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


def _only_silences(lacks: list[str], granted: dict[str, str]) -> bool:
    """Whether the missing permissions affect only the comment and reactions."""
    return lacks == ["pull_requests: write"] and granted.get("pull_requests") == "read"


def _check_permissions(name: str, wanted: Manifest, registered: dict[str, Any], page: str) -> Finding:
    lacks = manifest.lacks(wanted.granted, registered["permissions"])
    if lacks:
        todo = f"add them at {page}/permissions"
        if _only_silences(lacks, registered["permissions"]):
            return warning(f"{name} permissions", f"not asked for: {lacks[0]}: {WITHOUT}", todo)
        return error(f"{name} permissions", f"not asked for: {', '.join(lacks)}", todo)
    if extra := manifest.unneeded(wanted.useful, registered["permissions"]):
        todo = f"take them away at {page}/permissions"
        return warning(f"{name} permissions", f"more than needed: {', '.join(extra)}", todo)
    return ok(f"{name} permissions", f"as in {_manifest_of(wanted)}")


def _check_events(name: str, wanted: Manifest, registered: dict[str, Any], page: str) -> Finding:
    missing = [event for event in wanted.events if event not in registered["events"]]
    if missing:
        todo = f"subscribe at {page}/permissions"
        return error(f"{name} events", f"not subscribed to {', '.join(missing)}", todo)
    return ok(f"{name} events", f"as in {_manifest_of(wanted)}")


async def _check_installations(
    app: AppUnderTest, wanted: Manifest, registered: dict[str, Any], accounts: set[str]
) -> list[Finding]:
    """Judge the installations of these accounts (case folded); anybody may install a public App."""
    name = f"{app.words} installations"
    path, query = "/app/installations{?per_page}", {"per_page": "100"}
    every = [each async for each in app.github.as_app().getiter(path, query)]
    ours = [each for each in every if _account(each).casefold() in accounts]
    findings = [each for installation in ours if (each := _refused(name, wanted, installation))]
    if not ours:
        todo = f"install it: {registered['html_url']}/installations/new"
        return [
            error(name, "installed nowhere" if not every else "installed on no account that takes part", todo)
        ]
    if not findings:
        findings.append(ok(name, f"{len(ours)}, all with every permission and event"))
    if others := len(every) - len(ours):
        findings.append(
            ok(name, f"{others} more of accounts that take no part: what they granted does not matter")
        )
    return findings


def _refused(name: str, wanted: Manifest, installation: dict[str, Any]) -> Finding | None:
    """Return a finding about what an installation lacks; None if it lacks nothing."""
    account, page = _account(installation), installation["html_url"]
    if installation.get("suspended_at"):
        return error(name, f"suspended on {account}", f"unsuspend it at {page}")
    if lacks := manifest.lacks(wanted.granted, installation["permissions"]):
        todo = f"an owner of {account} accepts the new permissions at {page}"
        if _only_silences(lacks, installation["permissions"]):
            return warning(name, f"{account} has not granted {lacks[0]}: {WITHOUT}", todo)
        return error(name, f"{account} has not granted {', '.join(lacks)}", todo)
    if missing := [event for event in wanted.events if event not in installation["events"]]:
        todo = f"an owner of {account} accepts the new events at {page}"
        return error(name, f"{account} is not subscribed to {', '.join(missing)}", todo)
    return None


def _account(installation: dict[str, Any]) -> str:
    return str((installation.get("account") or {}).get("login", "?"))


def _settings_page(target: Target, registered: dict[str, Any]) -> str:
    owner = registered.get("owner") or {}
    account = f"/organizations/{owner.get('login')}" if owner.get("type") == "Organization" else ""
    return f"{web_url(target.settings.github_api_url)}{account}/settings/apps/{registered['slug']}"


def _manifest_of(wanted: Manifest) -> str:
    return " and ".join(manifest.FILES.values()) if wanted.role == "one" else manifest.FILES[wanted.role]


def _message_of(answer: Response) -> str:
    try:
        return str(msgspec.json.decode(answer.body).get("message", ""))[:200]
    except (msgspec.DecodeError, AttributeError):
        return answer.body[:100].decode("utf-8", "replace")


def _not_installed(entry: Entry) -> Finding:
    detail = f"the App is not on {entry.repo} (L{entry.level})"
    todo = "its owner installs it there, or the allowlist gets its present name, or loses the entry"
    blocks = entry.level == Level.L4
    return (
        error("backends", detail + ": the gate cannot turn green", todo)
        if blocks
        else warning("backends", detail, todo)
    )


async def _is_installed(app: AppUnderTest, repo: str) -> bool:
    owner, _, name = repo.partition("/")
    try:
        await app.github.as_app().getitem(
            f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}/installation"
        )
    except GitHubRefused:
        return False
    return True
