"""Endpoints of an App about itself: installations, tokens, webhook, delivery log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bot.demo.github import auth
from bot.demo.github.api.call import ApiCall, Route, json_response, page_size, paginated, paginated_with_total
from bot.demo.github.faults import ApiError, not_found
from bot.demo.github.serializers import repository
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.accounts import Installation
    from bot.demo.github.models import Delivery

LOG_RETENTION = 3 * 24 * 3_600_000  # milliseconds
MAX_REPOSITORIES = 500


async def get_app(call: ApiCall) -> web.Response:
    """Show the App."""
    mine = _installations(call)
    app = repository.app(call.state, call.app) | {"installations_count": len(mine)}
    return json_response(app)


async def list_installations(call: ApiCall) -> web.Response:
    """List the App's installations."""
    return paginated(call, _installations(call), repository.installation)


async def get_installation(call: ApiCall) -> web.Response:
    """Show an installation."""
    return json_response(repository.installation(call.state, _installation(call)))


async def repo_installation(call: ApiCall) -> web.Response:
    """Show the installation that covers a repository."""
    repo = call.state.repos.get(f"{call.path_text('owner')}/{call.path_text('repo')}".lower())
    for each in _installations(call):
        if repo is not None and repo.id in each.repository_ids:
            return json_response(repository.installation(call.state, each))
    raise not_found()


async def create_token(call: ApiCall) -> web.Response:
    """Create an installation token, restricted as requested."""
    installation = _installation(call)
    if installation.suspended_at is not None:
        raise ApiError(403, "This installation has been suspended")
    repository_ids = _requested_repositories(call, installation)
    permissions = _requested_permissions(call, installation)
    token = auth.mint(call.state, installation, repository_ids=repository_ids, permissions=permissions)
    body: dict[str, Any] = {
        "token": token.value,
        "expires_at": iso(token.expires_at),
        "permissions": permissions,
        "repository_selection": "selected",
    }
    if repository_ids is not None:
        repos = [each for each in call.state.repos.values() if each.id in repository_ids]
        body["repositories"] = [repository.repository(call.state, each) for each in repos]
    return json_response(body, 201)


async def list_repositories(call: ApiCall) -> web.Response:
    """List the repositories that the token covers."""
    token = call.token
    repos = [each for each in call.state.repos.values() if token and auth.covers(token, each)]
    return paginated_with_total(call, "repositories", repos, repository.repository)


async def hook_config(call: ApiCall) -> web.Response:
    """Show the App's webhook."""
    secret = {"secret": "********"} if call.app.webhook_secret else {}
    return json_response({"content_type": "json", "insecure_ssl": "0", "url": call.app.webhook_url, **secret})


async def change_hook(call: ApiCall) -> web.Response:
    """Change the App's webhook."""
    call.app.webhook_url = call.body.get("url", call.app.webhook_url)
    call.app.webhook_secret = call.body.get("secret", call.app.webhook_secret)
    return await hook_config(call)


async def list_deliveries(call: ApiCall) -> web.Response:
    """List the delivery log, newest first; the Link header has the cursor of the next page."""
    rows = [each for each in _log(call) if _matches(each, call.query("status"))]
    cursor = call.query("cursor").removeprefix("v1_")
    if cursor:
        if not cursor.isdigit():
            raise ApiError(422, "Invalid cursor")
        rows = [each for each in rows if each.id < int(cursor)]
    size = page_size(call)
    headers = {}
    if len(rows) > size:
        url = f"{call.state.api_url}/app/hook/deliveries?per_page={size}"
        headers["Link"] = f'<{url}&cursor=v1_{rows[size - 1].id}>; rel="next"'
    return json_response([_row(each) for each in rows[:size]], headers=headers)


async def get_delivery(call: ApiCall) -> web.Response:
    """Show a delivery with its request and response."""
    delivery = _delivery(call)
    sent = {"headers": dict(delivery.headers), "payload": json.loads(delivery.raw)}
    answered = {"headers": {}, "payload": delivery.answer}
    return json_response(
        _row(delivery) | {"url": delivery.app.webhook_url, "request": sent, "response": answered}
    )


async def redeliver(call: ApiCall) -> web.Response:
    """Redeliver with the same GUID, after the response."""
    delivery = _delivery(call)
    call.after_response(lambda: call.webhooks.redeliver(delivery))
    return json_response({}, 202)


def _installations(call: ApiCall) -> list[Installation]:
    return [each for each in call.state.installations.values() if each.app is call.app]


def _installation(call: ApiCall) -> Installation:
    found = call.state.installations.get(call.path_number("installation"))
    if found is None or found.app is not call.app:
        raise not_found()
    return found


def _requested_repositories(call: ApiCall, installation: Installation) -> frozenset[int] | None:
    names, ids = call.body.get("repositories"), call.body.get("repository_ids")
    if not names and not ids:
        return None
    count = len(names or ()) + len(ids or ())
    if count > MAX_REPOSITORIES:
        raise ApiError(422, f"Too many repositories: {count}, at most {MAX_REPOSITORIES}")
    known = {
        each.name.lower(): each.id
        for each in call.state.repos.values()
        if each.id in installation.repository_ids
    }
    repository_ids = {known.get(str(name).lower(), 0) for name in names or ()} | set(ids or ())
    if not repository_ids <= installation.repository_ids:
        raise ApiError(
            422,
            "There is at least one repository that does not exist or is not accessible to the "
            "parent installation.",
        )
    return frozenset(repository_ids)


def _requested_permissions(call: ApiCall, installation: Installation) -> dict[str, str]:
    requested = call.body.get("permissions")
    if not requested:
        return dict(installation.permissions)
    granted = isinstance(requested, dict) and all(
        level in auth.RANKS and auth.may(installation.permissions, [f"{name}:{level}"])
        for name, level in requested.items()
    )
    if not granted:
        raise ApiError(422, "The permissions requested are not granted to this installation.")
    return {"metadata": "read", **requested}


def _log(call: ApiCall) -> list[Delivery]:
    since = call.now - LOG_RETENTION
    return [
        each
        for each in reversed(call.state.deliveries)
        if each.app is call.app and each.delivered_at >= since
    ]


def _delivery(call: ApiCall) -> Delivery:
    number = call.path_number("delivery")
    found = next((each for each in _log(call) if each.id == number), None)
    if found is None:
        raise not_found()
    return found


def _matches(delivery: Delivery, status: str) -> bool:
    """Whether a delivery matches the filter, which only considers the status code."""
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
