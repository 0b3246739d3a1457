"""What may an App ask about itself? The App, its installations, tokens and delivery log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bot.demo.github import auth
from bot.demo.github.api.call import ApiCall, Route, answer, counted, listing, size_of
from bot.demo.github.refusals import Refused, missing
from bot.demo.github.shapes import accounts, repository
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.accounts import Installation
    from bot.demo.github.records import Delivery

LOG_KEPT = 3 * 24 * 3_600_000  # milliseconds
MOST_REPOSITORIES = 500


async def get_app(call: ApiCall) -> web.Response:
    """Describe the App itself."""
    mine = _installations(call)
    shown = accounts.app(call.world, call.app) | {"installations_count": len(mine)}
    return answer(shown)


async def list_installations(call: ApiCall) -> web.Response:
    """List where the App is installed."""
    return listing(call, _installations(call), accounts.installation)


async def get_installation(call: ApiCall) -> web.Response:
    """Describe one installation."""
    return answer(accounts.installation(call.world, _installation(call)))


async def repo_installation(call: ApiCall) -> web.Response:
    """Find the installation that covers a repository."""
    repo = call.world.repos.get(f"{call.part('owner')}/{call.part('repo')}".lower())
    for each in _installations(call):
        if repo is not None and repo.id in each.repository_ids:
            return answer(accounts.installation(call.world, each))
    raise missing()


async def create_token(call: ApiCall) -> web.Response:
    """Make an installation token, as narrow as asked."""
    installation = _installation(call)
    if installation.suspended_at is not None:
        raise Refused(403, "This installation has been suspended")
    chosen = _chosen_repositories(call, installation)
    permissions = _chosen_permissions(call, installation)
    token = auth.mint(call.world, installation, repository_ids=chosen, permissions=permissions)
    body: dict[str, Any] = {
        "token": token.value,
        "expires_at": iso(token.expires_at),
        "permissions": permissions,
        "repository_selection": "selected",
    }
    if chosen is not None:
        repos = [each for each in call.world.repos.values() if each.id in chosen]
        body["repositories"] = [repository.repository(call.world, each) for each in repos]
    return answer(body, 201)


async def list_repositories(call: ApiCall) -> web.Response:
    """List the repositories that the token reaches."""
    token = call.token
    repos = [each for each in call.world.repos.values() if token and auth.covers(token, each)]
    return counted(call, "repositories", repos, repository.repository)


async def hook_config(call: ApiCall) -> web.Response:
    """Describe the App's webhook."""
    secret = {"secret": "********"} if call.app.webhook_secret else {}
    return answer({"content_type": "json", "insecure_ssl": "0", "url": call.app.webhook_url, **secret})


async def change_hook(call: ApiCall) -> web.Response:
    """Change the App's webhook."""
    call.app.webhook_url = call.body.get("url", call.app.webhook_url)
    call.app.webhook_secret = call.body.get("secret", call.app.webhook_secret)
    return await hook_config(call)


async def list_deliveries(call: ApiCall) -> web.Response:
    """List the delivery log, newest first; the cursor in the Link header leads on."""
    rows = [each for each in _log(call) if _wanted(each, call.query("status"))]
    cursor = call.query("cursor").removeprefix("v1_")
    if cursor:
        if not cursor.isdigit():
            raise Refused(422, "Invalid cursor")
        rows = [each for each in rows if each.id < int(cursor)]
    size = size_of(call)
    headers = {}
    if len(rows) > size:
        here = f"{call.world.api_url}/app/hook/deliveries?per_page={size}"
        headers["Link"] = f'<{here}&cursor=v1_{rows[size - 1].id}>; rel="next"'
    return answer([_row(each) for each in rows[:size]], headers=headers)


async def get_delivery(call: ApiCall) -> web.Response:
    """Show one delivery with what was sent and answered."""
    delivery = _delivery(call)
    sent = {"headers": dict(delivery.headers), "payload": json.loads(delivery.raw)}
    answered = {"headers": {}, "payload": delivery.answer}
    return answer(_row(delivery) | {"url": delivery.app.webhook_url, "request": sent, "response": answered})


async def redeliver(call: ApiCall) -> web.Response:
    """Send a delivery again, under the same GUID, after this answer."""
    delivery = _delivery(call)
    call.later(lambda: call.hooks.again(delivery))
    return answer({}, 202)


def _installations(call: ApiCall) -> list[Installation]:
    return [each for each in call.world.installations.values() if each.app is call.app]


def _installation(call: ApiCall) -> Installation:
    found = call.world.installations.get(call.number("installation"))
    if found is None or found.app is not call.app:
        raise missing()
    return found


def _chosen_repositories(call: ApiCall, installation: Installation) -> frozenset[int] | None:
    names, ids = call.body.get("repositories"), call.body.get("repository_ids")
    if not names and not ids:
        return None
    asked = len(names or ()) + len(ids or ())
    if asked > MOST_REPOSITORIES:
        raise Refused(422, f"Too many repositories: {asked}, at most {MOST_REPOSITORIES}")
    known = {
        each.name.lower(): each.id
        for each in call.world.repos.values()
        if each.id in installation.repository_ids
    }
    chosen = {known.get(str(name).lower(), 0) for name in names or ()} | set(ids or ())
    if not chosen <= installation.repository_ids:
        raise Refused(
            422,
            "There is at least one repository that does not exist or is not accessible to the "
            "parent installation.",
        )
    return frozenset(chosen)


def _chosen_permissions(call: ApiCall, installation: Installation) -> dict[str, str]:
    asked = call.body.get("permissions")
    if not asked:
        return dict(installation.permissions)
    granted = isinstance(asked, dict) and all(
        level in auth.RANKS and auth.may(installation.permissions, [f"{name}:{level}"])
        for name, level in asked.items()
    )
    if not granted:
        raise Refused(422, "The permissions requested are not granted to this installation.")
    return {"metadata": "read", **asked}


def _log(call: ApiCall) -> list[Delivery]:
    since = call.now - LOG_KEPT
    return [
        each
        for each in reversed(call.world.deliveries)
        if each.app is call.app and each.delivered_at >= since
    ]


def _delivery(call: ApiCall) -> Delivery:
    number = call.number("delivery")
    found = next((each for each in _log(call) if each.id == number), None)
    if found is None:
        raise missing()
    return found


def _wanted(delivery: Delivery, status: str) -> bool:
    """Tell whether a row passes the filter, which looks at status codes alone."""
    low, high = {"success": (200, 399), "failure": (400, 599)}.get(status, (0, 999))
    return low <= delivery.status_code <= high


def _row(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": iso(delivery.delivered_at),
        "redelivery": delivery.redelivery,
        "duration": delivery.duration,
        "status": delivery.status,
        "status_code": delivery.status_code,
        "event": delivery.event,
        "action": delivery.action,
        "installation_id": delivery.installation_id,
        "repository_id": delivery.repository_id,
        "throttled_at": None,
    }


ROUTES = (
    Route(method="GET", path="/app", handler=get_app, access="app"),
    Route(method="GET", path="/app/installations", handler=list_installations, access="app"),
    Route(
        method="GET",
        path="/app/installations/{installation}",
        handler=get_installation,
        access="app",
    ),
    Route(
        method="POST",
        path="/app/installations/{installation}/access_tokens",
        handler=create_token,
        access="app",
    ),
    Route(
        method="GET",
        path="/repos/{owner}/{repo}/installation",
        handler=repo_installation,
        access="app",
    ),
    Route(method="GET", path="/installation/repositories", handler=list_repositories, access="token"),
    Route(method="GET", path="/app/hook/config", handler=hook_config, access="app"),
    Route(method="PATCH", path="/app/hook/config", handler=change_hook, access="app"),
    Route(method="GET", path="/app/hook/deliveries", handler=list_deliveries, access="app"),
    Route(method="GET", path="/app/hook/deliveries/{delivery}", handler=get_delivery, access="app"),
    Route(
        method="POST",
        path="/app/hook/deliveries/{delivery}/attempts",
        handler=redeliver,
        access="app",
    ),
)
