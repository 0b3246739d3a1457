"""Checks of webhooks: their address, a ping of our own to it, and GitHub's delivery log."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from bot.core.errors import GitHubRefused, in_words
from bot.core.finding import Finding, error, ok, warning
from bot.core.json_fields import as_time
from bot.github.manifest import HOOK
from bot.ops.doctor import database

if TYPE_CHECKING:
    from bot.ops.doctor.target import AppUnderTest, Target

TIMEOUT = aiohttp.ClientTimeout(total=10)
FORBIDDEN = frozenset({401, 403})  # answered by a proxy that admits only some
NEWEST = 30  # rows of GitHub's log
LOGS = "see the log of `ootbot serve`, and the proxy before it"


async def examine_webhook(target: Target, app: AppUnderTest) -> list[Finding]:
    """Check the webhook of one App."""
    found = [await _config(target, app)]
    if not target.settings.pulls:
        found.append(await _ping(target, app))
    return [*found, await _log(target, app)]


async def ready(target: Target) -> list[Finding]:
    """Ask the running bot whether it is ready; with the ADMIN_TOKEN it gives details."""
    url, token = f"{target.settings.url}/readyz", target.settings.admin_token
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with target.http.get(url, headers=headers, timeout=TIMEOUT, allow_redirects=False) as answer:
            ready = msgspec.json.decode(await answer.read())
            missing, notes = list(ready["missing"]), list(ready["notes"])
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        return [
            error(
                "server",
                f"{url}: {_words(problem)}",
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
    found = [error("server", f"not ready: {each}", LOGS) for each in missing]
    found += [warning("server", str(each), LOGS) for each in notes]
    return found or [ok("server", f"{target.settings.url} is ready")]


async def _config(target: Target, app: AppUnderTest) -> Finding:
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


async def _ping(target: Target, app: AppUnderTest) -> Finding:
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
            url, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
        ) as answer:
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        return error(
            name, f"{url}: {_words(problem)}", "start `ootbot serve`; check PUBLIC_URL, DNS and the proxy"
        )
    if status == 202:
        return ok(name, "the bot takes what is signed with the secret of these settings")
    if status == 401:
        return error(
            name, "the running bot has another secret than these settings", "restart it with these settings"
        )
    return error(name, f"{url} answered {status} to a ping", LOGS)


async def _log(target: Target, app: AppUnderTest) -> Finding:
    """Check GitHub's recent attempts; the newest decides."""
    name = f"{app.words} delivery log"
    query = {"per_page": str(NEWEST)}
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
    """Judge a newest attempt that failed: before the first start it could reach nothing."""
    name = f"{app.words} delivery log"
    if row["status_code"] == 401:
        todo = "give the App on GitHub the secret of WEBHOOK_SECRET, or the other way round"
        return error(name, f"{detail}: GitHub's secret is not ours", todo)
    if (as_time(row["delivered_at"]) or 0) < await database.first_start(target, app.github.app_id):
        todo = "open a pull request, then look again"
        return warning(name, f"{detail}, the newest before the bot was first started", todo)
    again = "then `ootbot redeliver --since 3d`"
    todo = f"make {target.settings.url} reachable for GitHub; {again}"
    if row["status_code"] == 503:  # what we answer ourselves where nothing can be stored
        todo = f"see the database lines above, and whether the bot runs; {again}"
    return error(name, f"{detail}, the newest with {row['status_code']} {row['status']}", todo)


def _arrived(row: dict[str, Any]) -> bool:
    return bool(200 <= row["status_code"] < 300)


def _words(problem: BaseException) -> str:
    return f"cannot be reached ({in_words(problem)})"
