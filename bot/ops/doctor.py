"""What `ootbot doctor` checks: this machine, the database, and the webhooks that arrive here.

A webhook is checked by its address, a ping of our own to it, and GitHub's delivery log. Nothing is changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import stat
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from bot.core.errors import GitHubRefused, Misconfigured, OotbotError, StoreUnavailable, in_words
from bot.core.feature import Finding, error, ok, warning
from bot.core.files import GB, LITTLE, TOO_LITTLE, free_bytes, read_presets
from bot.core.json_fields import as_time
from bot.core.setting_types import LOOPBACK
from bot.core.settings import Settings, options
from bot.db import installation, migrate
from bot.github import manifest
from bot.github.client import GitHubApp
from bot.github.manifest import HOOK
from bot.ingest import inbox, redeliver
from bot.ops import doctor_github

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from bot.core.clock import Clock
    from bot.db.store import Store
    from bot.db.transaction import Transaction
    from bot.github.manifest import Manifest, Role
    from bot.oot.allowlist.allowlist import Allowlist

Check = Callable[["Target"], Awaitable[list["Finding"]]]
GROUP, OTHERS = stat.S_IRWXG, stat.S_IRWXO
HOUR = 3_600_000  # milliseconds
WEBHOOK_TIMEOUT = aiohttp.ClientTimeout(total=10)
FORBIDDEN = frozenset({401, 403})  # answered by a proxy that admits only some
NEWEST_DELIVERIES = 30  # rows of GitHub's log
LOGS = "see the log of `ootbot serve`, and the proxy before it"


@dataclass(frozen=True, kw_only=True)
class AppUnderTest:
    """One of our Apps, and its role."""

    role: Role
    github: GitHubApp
    secret: str  # the webhook secret in force; never shown

    @property
    def words(self) -> str:
        """Its name in findings."""
        where = {"one": "", "upstream": " (upstream)", "relay": " (backends)"}[self.role]
        return f"App {self.github.app_id}{where}"

    def wanted(self, allowlist: Allowlist | None) -> Manifest:
        """Return the manifest this App should have, given who takes part."""
        entries = allowlist.entries if allowlist else ()
        only_workflows = bool(entries) and all(entry.dispatch == "workflow" for entry in entries)
        return manifest.manifest_for(
            self.role, workflow_dispatch=only_workflows, server_version=self.github.server_version
        )


@dataclass(frozen=True, kw_only=True)
class Target:
    """The installation that is examined."""

    settings: Settings
    store: Store  # not opened: nothing is migrated
    http: aiohttp.ClientSession
    clock: Clock
    apps: tuple[AppUnderTest, ...]
    checks: tuple[tuple[str, Check], ...] = ()  # of the features, by name

    async def has_database(self) -> bool:
        """Whether there is a database to examine: SQLite would create one."""
        if not self.store.sqlite:
            return True
        return await asyncio.to_thread(Path(self.store.url.database or "").exists)

    @property
    def upstream(self) -> AppUnderTest:
        """The App on upstream."""
        return self.apps[0]

    @property
    def relay(self) -> AppUnderTest:
        """The App on the backends; the same one unless there are two."""
        return self.apps[-1]

    def app_for(self, repo: str) -> GitHubApp:
        """Return the App of the side a repository is on, as `Context.app_for` does."""
        return (self.upstream if self.settings.is_upstream(repo) else self.relay).github


def apps_under_test(
    settings: Settings, http: aiohttp.ClientSession, clock: Clock
) -> tuple[AppUnderTest, ...]:
    """Return the App, or both; raises Misconfigured for an invalid key."""

    def app(role: Role, app_id: int, private_key: str, secret: str) -> AppUnderTest:
        github = GitHubApp(
            app_id=app_id, private_key=private_key, api_url=settings.github_api_url, http=http, clock=clock
        )
        return AppUnderTest(role=role, github=github, secret=secret)

    secret = settings.webhook_secret[0]
    if settings.relay_app_id is None or settings.relay_private_key is None:
        return (app("one", settings.app_id, settings.private_key, secret),)
    relay_secret = (settings.relay_webhook_secret or settings.webhook_secret)[0]
    return (
        app("upstream", settings.app_id, settings.private_key, secret),
        app("relay", settings.relay_app_id, settings.relay_private_key, relay_secret),
    )


def check_settings(chosen: Settings, warnings: Sequence[str]) -> list[Finding]:
    """Check the options as a whole."""
    findings = [warning("settings", each, "correct or remove it") for each in warnings]
    if chosen.public_url is None and chosen.host in LOOPBACK and not chosen.pulls:
        todo = "set PUBLIC_URL, or RECEIVE=pull where GitHub cannot reach this machine"
        findings.append(warning("settings", f"links and callbacks point to {chosen.url}", todo))
    if chosen.admin_token is None:
        todo = "set ADMIN_TOKEN to a long random text"
        findings.append(warning("settings", "ADMIN_TOKEN is unset: /api/admin is closed", todo))
    return findings or [ok("settings", f"complete; upstream is {', '.join(chosen.upstream_repo)}")]


def check_preset(chosen: Settings) -> list[Finding]:
    """Say what the preset sets, and which settings override it."""
    if chosen.preset is None:
        return []
    listed, fields = read_presets()[chosen.preset], options(Settings)
    own = {
        name for name, text in listed.items() if getattr(chosen, name) != fields[name].metadata["read"](text)
    }
    said = [f"{name.upper()}={text}" for name, text in listed.items() if name not in own]
    said += [f"{name.upper()} is set by its own name, which counts" for name in listed if name in own]
    return [ok("preset", f"{chosen.preset}: {'; '.join(said)}")]


def check_key_files(files: Iterable[Path]) -> list[Finding]:
    """Check who may read the files that hold secrets.

    The mode cannot be changed on a read-only mount: there a container's group may read.
    """
    findings = []
    for path in files:
        fixed = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
        if stat.S_IMODE(path.stat().st_mode) & (OTHERS if fixed else GROUP | OTHERS):
            findings.append(warning("key", f"{path} can be read by others", f"chmod 600 {path}"))
        else:
            findings.append(ok("key", f"{path} is private"))
    return findings or [ok("key", "given by the environment")]


def check_disk(folder: Path) -> Finding:
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


async def run_checks(target: Target) -> AsyncIterator[Finding]:
    """Yield the findings as they are made."""
    for each in await _check_here(target):
        yield each
    finding, listed = await doctor_github.check_allowlist(target)
    yield finding
    for each in doctor_github.check_overlaps(target.settings, listed) if listed else ():
        yield each
    for app in target.apps:
        findings = await _tried(app.words, doctor_github.examine_identity(target, app, listed))
        for each in findings:
            yield each
        if any(each.name == app.words for each in findings):
            return  # GitHub cannot be reached: the rest would only repeat it
    async for each in _check_with_github(target, listed):
        yield each


async def check_database(target: Target) -> tuple[Finding, bool]:
    """Check version and access; the second value says whether rows can be read."""
    store = target.store
    if not await target.has_database():
        detail = f"there is no database at {store.url.database} yet"
        return warning("database", detail, "start `ootbot serve`: it makes one"), False
    try:
        async with store.read() as tx:
            version = await inbox.schema_version(tx)
        if version is None:
            return warning("database", "it has no tables yet", "start `ootbot serve`: it makes them"), False
        if migrate.is_newer(version):
            async with store.read() as tx:
                supported = await inbox.is_schema_supported(tx)
            return _newer_version(version, supported=supported), supported
        if version != migrate.head():
            return _older_version(version), False
        async with store.transaction(lock_timeout=10) as tx:
            await inbox.check_writable(tx)
    except (Misconfigured, StoreUnavailable) as problem:
        todo = "check that it runs, DATABASE_URL, its disk and its permissions"
        return error("database", str(problem)[:400], todo), False
    kind = "SQLite" if store.sqlite else "PostgreSQL"
    return ok("database", f"{kind}, version {version}, can be written"), True


async def check_database_clock(target: Target) -> list[Finding]:
    """Check that this machine and PostgreSQL agree on the time."""
    if target.store.sqlite:
        return []
    behind = await installation.offset_to_database(target.store, target.clock)
    if abs(behind) <= installation.CLOCK_TOLERANCE:
        return [ok("database clock", "that of the database")]
    detail = f"{abs(behind) / 1000:.0f} s {'behind' if behind > 0 else 'ahead of'} the database's"
    todo = "synchronise both with NTP; until then the bot here uses the database's time"
    return [warning("database clock", detail, todo)]


async def first_start(target: Target, app_id: int) -> int:
    """Return when the bot first read this App's delivery log (epoch milliseconds), 0 where unknown."""
    _, readable = await check_database(target)
    if not readable:
        return 0
    async with target.store.read() as tx:
        looked = await redeliver.read_sweep(tx, app_id, "redeliver")
    return looked["created_at"] if looked else 0


async def check_activity(target: Target) -> list[Finding]:
    """Check when something last came in, the sweeps, and what is stuck."""
    async with target.store.read() as tx:
        return [
            _check_last_delivery(tx, await inbox.read_last_received(tx)),
            *await _check_sweeps(tx, target),
            await _check_stuck(tx),
        ]


def age_in_words(span: int) -> str:
    """Return milliseconds in one unit, rounded down."""
    for length, unit in ((24 * HOUR, "d"), (HOUR, "h"), (60_000, "min")):
        if span >= length:
            return f"{span // length} {unit}"
    return f"{max(span, 0) // 1000} s"


async def examine_webhook(target: Target, app: AppUnderTest) -> list[Finding]:
    """Check the webhook of one App."""
    findings = [await _check_config(target, app)]
    if not target.settings.pulls:
        findings.append(await _check_ping(target, app))
    return [*findings, await _check_log(target, app)]


async def check_ready(target: Target) -> list[Finding]:
    """Ask the running bot whether it is ready; with the ADMIN_TOKEN it gives details."""
    url, token = f"{target.settings.url}/readyz", target.settings.admin_token
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with target.http.get(
            url, headers=headers, timeout=WEBHOOK_TIMEOUT, allow_redirects=False
        ) as answer:
            ready = msgspec.json.decode(await answer.read())
            missing, notes = list(ready["missing"]), list(ready["notes"])
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        return [
            error(
                "server",
                f"{url}: {_problem_words(problem)}",
                "start `ootbot serve`; check PUBLIC_URL, DNS and the proxy",
            )
        ]
    except (msgspec.DecodeError, KeyError, TypeError):
        if answer.status in FORBIDDEN:
            todo = "ask the process itself: GET /readyz on its own port"
            return [warning("server", f"the proxy keeps {url} inside ({answer.status})", todo)]
        return [
            error(
                "server",
                f"{url} answered {answer.status}, and it is not ootbot",
                "check PUBLIC_URL and the proxy",
            )
        ]
    findings = [error("server", f"not ready: {each}", LOGS) for each in missing]
    findings += [warning("server", str(each), LOGS) for each in notes]
    return findings or [ok("server", f"{target.settings.url} is ready")]


async def _check_here(target: Target) -> list[Finding]:
    """Run the checks that need no network."""
    finding, readable = await check_database(target)
    findings = [check_disk(target.settings.data_dir), finding]
    if readable:
        findings += await _tried("database clock", check_database_clock(target))
        findings += await _tried("activity", check_activity(target))
    return findings


async def _check_with_github(target: Target, listed: Allowlist | None) -> AsyncIterator[Finding]:
    checks: list[tuple[str, Awaitable[list[Finding]]]] = [("upstream", doctor_github.check_upstream(target))]
    if listed is not None:
        checks.append(("backends", doctor_github.check_backends(target, listed)))
    checks.extend((name, run(target)) for name, run in target.checks)
    checks += [("server", check_ready(target))]
    checks += [(f"{app.words} webhook", examine_webhook(target, app)) for app in target.apps]
    for name, check in checks:
        for each in await _tried(name, check):
            yield each


async def _tried(name: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await check
    except OotbotError as problem:
        return [error(name, str(problem)[:300], "try again; see the log of `ootbot serve`")]


def _newer_version(version: str, *, supported: bool) -> Finding:
    if supported:
        detail = f"its version {version} is newer than this program's {migrate.head()}, which works beside it"
        return warning("database", detail, "finish the upgrade: run the newer ootbot everywhere")
    detail = f"its version {version} is newer than this program's {migrate.head()}, which cannot work with it"
    return error("database", detail, "run the newer ootbot, or restore a backup made before the upgrade")


def _older_version(version: str) -> Finding:
    detail = f"its version is {version}, this program needs {migrate.head()}"
    return warning(
        "database", detail, "restart `ootbot serve`: it migrates at the start; make a backup first"
    )


def _check_last_delivery(tx: Transaction, at: int | None) -> Finding:
    name = "last delivery"
    if at is None:
        todo = "open a pull request, then look at Recent Deliveries on the App's page on GitHub"
        return warning(name, "GitHub has sent nothing yet", todo)
    detail = f"{age_in_words(tx.now - at)} ago"
    if tx.now - at > 24 * HOUR:
        return warning(name, detail, "if upstream was busy since, see the webhook lines")
    return ok(name, detail)


async def _check_sweeps(tx: Transaction, target: Target) -> list[Finding]:
    names = [name for name in redeliver.SWEPT if not (target.settings.pulls and name == "redeliver")]
    ids = [app.github.app_id for app in target.apps]
    findings = []
    for name, app_id, age in await redeliver.read_sweep_ages(tx, ids, names):
        detail = f"{redeliver.SWEPT[name]} was last looked at {age_in_words(age)} ago (App {app_id})"
        todo = "see why: GET /api/admin/tasks, and the log of `ootbot serve`"
        if age > 24 * HOUR:
            findings.append(error(f"sweep {name}", detail, todo + "; after 3 days GitHub's log has ended"))
        elif age > HOUR:
            findings.append(warning(f"sweep {name}", detail, todo))
        else:
            findings.append(ok(f"sweep {name}", detail))
    missing = {f"sweep {name}" for name in names} - {each.name for each in findings}
    return findings + [
        warning(each, "never done yet", "start `ootbot serve` and wait ten minutes")
        for each in sorted(missing)
    ]


async def _check_stuck(tx: Transaction) -> Finding:
    now = await inbox.measure_backlog(tx)
    detail = (
        f"{now.deliveries} deliveries and {now.due} tasks wait; "
        f"{now.dead} dead, {now.parked} deliveries of the last week parked"
    )
    if now.oldest_delivery > HOUR or now.longest_due > HOUR:
        return error("queue", detail, "no process works on them: is `ootbot serve` running?")
    if now.dead or now.parked:
        return warning("queue", detail, "docs/operations.md, 'When something is stuck'")
    return ok("queue", detail)


async def _check_config(target: Target, app: AppUnderTest) -> Finding:
    name, wanted = f"{app.words} webhook", target.settings.url + HOOK
    try:
        config = await app.github.as_app().getitem("/app/hook/config")
    except GitHubRefused as problem:
        return error(
            name, f"GitHub does not show it: {problem.message}", "set a webhook on the App's page on GitHub"
        )
    todo = "correct it on the App's page on GitHub"
    if not config.get("secret"):
        return error(
            name, "GitHub signs nothing: no secret is set there", f"{todo}: the value of WEBHOOK_SECRET"
        )
    if config.get("url") != wanted and not target.settings.pulls:
        return error(
            name, f"GitHub sends to {config.get('url')}, the bot is at {wanted}", f"{todo}, or set PUBLIC_URL"
        )
    if config.get("content_type") != "json":
        return error(name, f"its content type is {config.get('content_type')}", f"{todo}: application/json")
    if str(config.get("insecure_ssl")) == "1":
        return warning(name, "GitHub does not verify the certificate", f"{todo}: enable SSL verification")
    return ok(name, f"GitHub sends to {config.get('url')}")


async def _check_ping(target: Target, app: AppUnderTest) -> Finding:
    """Send a ping to our own address, signed with the secret of these settings."""
    name, url = f"{app.words} secret", target.settings.url + HOOK
    body = msgspec.json.encode({"zen": "ootbot doctor", "hook_id": 0})
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "ping",
        "X-GitHub-Delivery": f"doctor-{uuid.uuid4()}",
        "X-GitHub-Hook-Installation-Target-ID": str(app.github.app_id),
        "X-Hub-Signature-256": "sha256=" + hmac.digest(app.secret.encode(), body, hashlib.sha256).hex(),
    }
    try:
        async with target.http.post(
            url, data=body, headers=headers, timeout=WEBHOOK_TIMEOUT, allow_redirects=False
        ) as answer:
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        return error(
            name,
            f"{url}: {_problem_words(problem)}",
            "start `ootbot serve`; check PUBLIC_URL, DNS and the proxy",
        )
    if status == 202:
        return ok(name, "the bot takes what is signed with the secret of these settings")
    if status == 401:
        return error(
            name, "the running bot has another secret than these settings", "restart it with these settings"
        )
    return error(name, f"{url} answered {status} to a ping", LOGS)


async def _check_log(target: Target, app: AppUnderTest) -> Finding:
    """Check GitHub's recent attempts; the newest decides."""
    name = f"{app.words} delivery log"
    query = {"per_page": str(NEWEST_DELIVERIES)}
    try:
        rows = await app.github.as_app().getitem("/app/hook/deliveries{?per_page}", query)
    except GitHubRefused as problem:
        return error(
            name, f"GitHub does not show it: {problem.message}", "set a webhook on the App's page on GitHub"
        )
    if not rows:
        return warning(
            name, "GitHub has sent nothing in the last days", "install the App; then open a pull request"
        )
    failed = [row for row in rows if not _arrived(row)]
    detail = f"of the newest {len(rows)} attempts {len(failed)} failed"
    if target.settings.pulls:
        return ok(name, f"{len(rows)} of the newest are there to be pulled")
    if _arrived(rows[0]):
        return ok(name, detail + ", the newest did not")
    return await _newest_failed(target, app, rows[0], detail)


async def _newest_failed(target: Target, app: AppUnderTest, row: dict[str, Any], detail: str) -> Finding:
    """Judge the newest attempt, which failed: before the first start nothing could answer it."""
    name = f"{app.words} delivery log"
    if row["status_code"] == 401:
        todo = "give the App on GitHub the secret of WEBHOOK_SECRET, or the other way round"
        return error(name, f"{detail}: GitHub's secret is not ours", todo)
    if (as_time(row["delivered_at"]) or 0) < await first_start(target, app.github.app_id):
        todo = "open a pull request, then look again"
        return warning(name, f"{detail}, the newest before the bot was first started", todo)
    again = "then `ootbot redeliver --since 3d`"
    todo = f"make {target.settings.url} reachable for GitHub; {again}"
    if row["status_code"] == 503:  # what we answer ourselves where nothing can be stored
        todo = f"see the database lines above, and whether the bot runs; {again}"
    return error(name, f"{detail}, the newest with {row['status_code']} {row['status']}", todo)


def _arrived(row: dict[str, Any]) -> bool:
    return bool(200 <= row["status_code"] < 300)


def _problem_words(problem: BaseException) -> str:
    return f"cannot be reached ({in_words(problem)})"
