"""What does GitHub say about accounts, Apps and installations?"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from bot.demo.github.times import iso

if TYPE_CHECKING:
    from bot.demo.github.accounts import App, Installation, User
    from bot.demo.github.world import World


def node_id(kind: str, number: int) -> str:
    """Return an opaque GraphQL id."""
    return base64.b64encode(f"0{len(kind)}:{kind}{number}".encode()).decode()


def user(world: World, who: User | str) -> dict[str, Any]:
    """Return an account as it is embedded nearly everywhere."""
    account = world.user(who) if isinstance(who, str) else who
    api = f"{world.api_url}/users/{account.login}"
    return {
        "login": account.login,
        "id": account.id,
        "node_id": node_id(account.type, account.id),
        "avatar_url": f"{world.url}/avatars/u/{account.id}?v=4",
        "gravatar_id": "",
        "url": api,
        "html_url": f"{world.url}/{account.login}",
        "followers_url": f"{api}/followers",
        "following_url": f"{api}/following{{/other_user}}",
        "gists_url": f"{api}/gists{{/gist_id}}",
        "starred_url": f"{api}/starred{{/owner}}{{/repo}}",
        "subscriptions_url": f"{api}/subscriptions",
        "organizations_url": f"{api}/orgs",
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events{{/privacy}}",
        "received_events_url": f"{api}/received_events",
        "type": account.type,
        "user_view_type": "public",
        "site_admin": False,
    }


def organization(world: World, login: str) -> dict[str, Any]:
    """Return the organisation part of a webhook body."""
    account = world.user(login, "Organization")
    api = f"{world.api_url}/orgs/{account.login}"
    return {
        "login": account.login,
        "id": account.id,
        "node_id": node_id("Organization", account.id),
        "url": api,
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events",
        "hooks_url": f"{api}/hooks",
        "issues_url": f"{api}/issues",
        "members_url": f"{api}/members{{/member}}",
        "public_members_url": f"{api}/public_members{{/member}}",
        "avatar_url": f"{world.url}/avatars/u/{account.id}?v=4",
        "description": "",
    }


def app(world: World, which: App) -> dict[str, Any]:
    """Return a GitHub App."""
    return {
        "id": which.app_id,
        "client_id": which.client_id,
        "slug": which.slug,
        "node_id": node_id("App", which.app_id),
        "owner": user(world, "octocat"),
        "name": which.slug,
        "description": "",
        "external_url": f"{world.url}/apps/{which.slug}",
        "html_url": f"{world.url}/apps/{which.slug}",
        "created_at": iso(which.created_at),
        "updated_at": iso(which.created_at),
        "permissions": dict(which.permissions),
        "events": list(which.events),
    }


def installation(world: World, which: Installation) -> dict[str, Any]:
    """Return an App's installation on an account."""
    account = world.user(which.account)
    return {
        "id": which.id,
        "client_id": which.app.client_id,
        "account": user(world, account),
        "repository_selection": "selected",
        "access_tokens_url": f"{world.api_url}/app/installations/{which.id}/access_tokens",
        "repositories_url": f"{world.api_url}/installation/repositories",
        "html_url": f"{world.url}/organizations/{account.login}/settings/installations/{which.id}",
        "app_id": which.app.app_id,
        "app_slug": which.app.slug,
        "target_id": account.id,
        "target_type": account.type,
        "permissions": dict(which.permissions),
        "events": list(which.events),
        "created_at": iso(which.created_at),
        "updated_at": iso(which.suspended_at or which.created_at),
        "single_file_name": None,
        "has_multiple_single_files": False,
        "single_file_paths": [],
        "suspended_by": None if which.suspended_at is None else user(world, "alice"),
        "suspended_at": iso(which.suspended_at),
    }
