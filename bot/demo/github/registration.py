"""Registration of Apps from a manifest, and their installation: form, confirmation, code, secrets."""

from __future__ import annotations

import json
import secrets
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from bot.demo.github.api.call import json_response
from bot.demo.github.auth import RANKS, private_key
from bot.demo.github.faults import not_found
from bot.demo.github.models import PERMISSIONS, may_subscribe
from bot.demo.github.serializers import repository
from bot.demo.github.state import MAINTAINER, GitHubBase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.demo.github.accounts import App
    from bot.demo.github.models import Repo
    from bot.demo.github.pages import Pages
    from bot.demo.github.simulated_github import SimulatedGitHub

if TYPE_CHECKING:
    from bot.demo.github.accounts import App, Installation
    from bot.demo.github.models import Repo


MAX_NAME = 34  # characters
CODE_LIFETIME = 3_600_000  # milliseconds


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A registered App whose secrets have not been fetched."""

    app: App
    expires_at: int  # epoch milliseconds


class Registration:
    """The pages to register and install an App, and the API call that returns its secrets."""

    def __init__(self, github: SimulatedGitHub, pages: Pages) -> None:
        self._github = github
        self._pages = pages
        self._codes: dict[str, Pending] = {}

    def add_to(self, application: web.Application) -> None:
        """Add the routes; must come before the API's catch-all route."""
        add = application.router.add_route
        add("POST", "/settings/apps/new", self.confirm)
        add("POST", "/organizations/{organization}/settings/apps/new", self.confirm)
        add("POST", "/settings/apps", self.create)
        add("GET", "/apps/{slug}/installations/new", self.select_repositories)
        add("POST", "/apps/{slug}/installations", self.install)
        add("POST", "/api/v3/app-manifests/{code}/conversions", self.convert)

    async def confirm(self, request: web.Request) -> web.Response:
        """Show what the App requests, with a form for its name; 422 for a manifest that GitHub would refuse."""
        form = await request.post()
        try:
            manifest = json.loads(str(form.get("manifest", "")))
        except ValueError:
            raise web.HTTPUnprocessableEntity(text="The manifest is not JSON.") from None
        if problems := manifest_problems(
            manifest,
            {app.slug for app in self._github.state.apps.values()},
            on_server=bool(self._github.state.server_version),
        ):
            raise web.HTTPUnprocessableEntity(text="\n".join(problems))
        return self._pages.page(
            "new_app.html",
            redirects_to=_origin(manifest["redirect_url"]),
            manifest=manifest,
            raw=json.dumps(manifest),
            state=request.query.get("state", ""),
            owner=request.match_info.get("organization", ""),
        )

    async def create(self, request: web.Request) -> web.Response:
        """Register the App and redirect with a code that is valid once, for an hour."""
        form = await request.post()
        manifest = json.loads(str(form["manifest"]))
        app = self._github.state.add_app(
            slug=slug_of(str(form["name"])),
            key=private_key(),
            webhook_url=manifest["hook_attributes"]["url"],
            webhook_secret=secrets.token_hex(20),
            permissions=manifest["default_permissions"],
            events=manifest.get("default_events", []),
        )
        code = secrets.token_hex(20)
        self._codes[code] = Pending(app=app, expires_at=self._github.state.now() + CODE_LIFETIME)
        self._github.background.spawn(self._github.ping(app))
        back = urlencode({"code": code, "state": str(form["state"])})
        raise web.HTTPFound(f"{manifest['redirect_url']}?{back}")

    async def convert(self, request: web.Request) -> web.Response:
        """Exchange the code for the App and its secrets."""
        if fault := self._github.faults.take(request.method, request.path):
            return web.Response(status=fault.status or 502, text=fault.text())
        pending = self._codes.pop(request.match_info["code"], None)
        if pending is None or pending.expires_at < self._github.state.now():
            error = not_found()
            return json_response(error.body(), error.status)
        app = pending.app
        secret_fields = {
            "client_secret": secrets.token_hex(20),
            "webhook_secret": app.webhook_secret,
            "pem": app.private_key_pem,
        }
        return json_response(repository.app(self._github.state, app) | secret_fields, 201)

    async def select_repositories(self, request: web.Request) -> web.Response:
        """Show the repositories to install the App on."""
        repos = list(self._github.state.repos.values())
        return self._pages.page("install_app.html", app=self._app(request), repos=repos)

    async def install(self, request: web.Request) -> web.Response:
        """Install the App on the selected repositories, and notify it."""
        app, form = self._app(request), await request.post()
        chosen = {str(name).lower() for name in form.getall("repo", [])}
        repos = [repo for name, repo in self._github.state.repos.items() if name in chosen]
        by_account: dict[str, list[Repo]] = {}
        for repo in repos:
            by_account.setdefault(repo.owner, []).append(repo)
        for repos_of_account in by_account.values():
            installations = [self._github.install(repo, app) for repo in repos_of_account]
            await self._github.announce_installation(installations[0], "created")
        raise web.HTTPSeeOther("/")

    def _app(self, request: web.Request) -> App:
        for app in self._github.state.apps.values():
            if app.slug == request.match_info["slug"]:
                return app
        raise web.HTTPNotFound(text="There is no such App.")


def manifest_problems(manifest: Mapping[str, Any], taken: set[str], *, on_server: bool = False) -> list[str]:
    """Return the reasons for which GitHub would refuse a manifest."""
    permissions, hook = manifest.get("default_permissions", {}), manifest.get("hook_attributes", {})
    name = str(manifest.get("name", ""))
    problems = [
        f"{what} is not a URL"
        for what, url in (
            ("url", manifest.get("url")),
            ("hook_attributes.url", hook.get("url")),
            ("redirect_url", manifest.get("redirect_url")),
        )
        if not _is_url(url)
    ]
    if not 0 < len(name) <= MAX_NAME:
        problems.append(f"Name is too long (maximum is {MAX_NAME} characters)")
    if slug_of(name) in taken:
        problems.append("Name is already taken")
    problems += [
        f"Default permissions: {each} is not a permission"
        for each, level in permissions.items()
        if each not in PERMISSIONS or level not in RANKS
    ]
    problems += [
        f"Default events unsupported: {event}"
        for event in manifest.get("default_events", [])
        if not may_subscribe(event, permissions) or (on_server and event == "merge_group")
    ]
    return problems


def slug_of(name: str) -> str:
    """Return the slug that GitHub derives from an App's name."""
    return "-".join("".join(each if each.isalnum() else " " for each in name.lower()).split())


def _is_url(text: object) -> bool:
    parts = urlsplit(text) if isinstance(text, str) else None
    return parts is not None and parts.scheme in {"http", "https"} and bool(parts.hostname)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


REPOSITORY_FIELDS = ("id", "node_id", "name", "full_name", "private")


class Installations(GitHubBase):
    """Management of installations; the App is notified only by `announce_installation` and `ping`."""

    def install(self, repo: Repo | str, app: App) -> Installation:
        """Install an App on a repository."""
        return self.state.install(app, self.state.repo(repo))

    def uninstall(self, repo: Repo | str, app: App) -> None:
        """Remove an App from a repository; with the last repository its installation ends."""
        where = self.state.repo(repo)
        installation = self._installation(where, app)
        installation.repository_ids.discard(where.id)
        if not installation.repository_ids:
            del self.state.installations[installation.id]

    def suspend(self, repo: Repo | str, app: App, *, suspended: bool = True) -> None:
        """Suspend the App's installation on the repository's account, or resume it."""
        installation = self._installation(self.state.repo(repo), app)
        installation.suspended_at = self.state.now() if suspended else None

    async def announce_installation(self, installation: Installation, action: str, *repos: Repo) -> None:
        """Notify an App of a change of its installation.

        `created`, `deleted`, `suspend`, `unsuspend` and `new_permissions_accepted` concern the whole installation,
        `added` and `removed` the given repositories.
        """
        listed = repos or [
            each for each in self.state.repos.values() if each.id in installation.repository_ids
        ]
        named = [repository.named(self.state, each) for each in listed]
        short = [{key: each[key] for key in REPOSITORY_FIELDS} for each in named]
        body: dict[str, Any] = {
            "action": action,
            "installation": repository.installation(self.state, installation),
            "requester": None,
            "sender": repository.user(self.state, MAINTAINER),
        }
        if action in {"added", "removed"}:
            body |= {"repository_selection": "selected"}
            body |= {"repositories_added": [], "repositories_removed": []}
            body[f"repositories_{action}"] = short
            name = "installation_repositories"
        else:
            body["repositories"] = short
            name = "installation"
        await self.webhooks.send(installation.app, name, body, guid=str(uuid.uuid4()))

    async def ping(self, app: App) -> None:
        """Send the ping with which GitHub confirms a new webhook."""
        hook = {
            "type": "App",
            "id": app.app_id * 10,
            "active": True,
            "events": list(app.events),
            "app_id": app.app_id,
        }
        body = {"zen": "Keep it logically awesome.", "hook_id": app.app_id * 10, "hook": hook}
        await self.webhooks.send(app, "ping", body, guid=str(uuid.uuid4()))

    def _installation(self, repo: Repo, app: App) -> Installation:
        found = self.state.installation(app, repo.owner)
        if found is None:
            raise LookupError(f"{app.slug} is not installed on {repo.full_name}")
        return found
