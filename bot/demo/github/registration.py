"""How does a GitHub App come to be? The manifest flow: a form, a confirmation, a code, and once the secrets."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from bot.demo.github.api.call import answer
from bot.demo.github.auth import RANKS
from bot.demo.github.keys import private_key
from bot.demo.github.refusals import missing
from bot.demo.github.shapes import accounts
from bot.demo.github.subscriptions import PERMISSIONS, allowed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.demo.github.accounts import App
    from bot.demo.github.pages import Pages
    from bot.demo.github.simulated import SimulatedGitHub
    from bot.demo.github.state import Repo

LONGEST_NAME = 34
CODE_LIFE = 3_600_000  # milliseconds


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An App that was made and whose secrets nobody has fetched yet."""

    app: App
    until: int  # epoch milliseconds


class Registration:
    """The pages for new Apps and their installation, and the one call that gives an App's secrets away."""

    def __init__(self, github: SimulatedGitHub, pages: Pages) -> None:
        self._github = github
        self._pages = pages
        self._codes: dict[str, Pending] = {}

    def add_to(self, application: web.Application) -> None:
        """Register the addresses; before the API's catch-all."""
        add = application.router.add_route
        add("POST", "/settings/apps/new", self.ask)
        add("POST", "/organizations/{organization}/settings/apps/new", self.ask)
        add("POST", "/settings/apps", self.create)
        add("GET", "/apps/{slug}/installations/new", self.choose)
        add("POST", "/apps/{slug}/installations", self.install)
        add("POST", "/api/v3/app-manifests/{code}/conversions", self.convert)

    async def ask(self, request: web.Request) -> web.Response:
        """Show what the App asks for, and let its name be changed; 422 for what GitHub would refuse."""
        form = await request.post()
        try:
            manifest = json.loads(str(form.get("manifest", "")))
        except ValueError:
            raise web.HTTPUnprocessableEntity(text="The manifest is not JSON.") from None
        if problems := wrong_with(manifest, {app.slug for app in self._github.world.apps.values()}):
            raise web.HTTPUnprocessableEntity(text="\n".join(problems))
        return self._pages.page(
            "new_app.html",
            leads_to=_origin(manifest["redirect_url"]),
            manifest=manifest,
            raw=json.dumps(manifest),
            state=request.query.get("state", ""),
            owner=request.match_info.get("organization", ""),
        )

    async def create(self, request: web.Request) -> web.Response:
        """Make the App and send the browser back with a code that works once, for an hour."""
        form = await request.post()
        manifest = json.loads(str(form["manifest"]))
        made = self._github.world.add_app(
            slug=slug_of(str(form["name"])),
            key=private_key(),
            webhook_url=manifest["hook_attributes"]["url"],
            webhook_secret=secrets.token_hex(20),
            permissions=manifest["default_permissions"],
            events=manifest.get("default_events", []),
        )
        code = secrets.token_hex(20)
        self._codes[code] = Pending(app=made, until=self._github.world.now() + CODE_LIFE)
        self._github.background.spawn(self._github.ping(made))
        back = urlencode({"code": code, "state": str(form["state"])})
        raise web.HTTPFound(f"{manifest['redirect_url']}?{back}")

    async def convert(self, request: web.Request) -> web.Response:
        """Give the App's secrets away, once."""
        if fault := self._github.faults.take(request.method, request.path):
            return web.Response(status=fault.status or 502, text=fault.text())
        pending = self._codes.pop(request.match_info["code"], None)
        if pending is None or pending.until < self._github.world.now():
            refused = missing()
            return answer(refused.body(), refused.status)
        app = pending.app
        given = {
            "client_secret": secrets.token_hex(20),
            "webhook_secret": app.webhook_secret,
            "pem": app.private_key_pem,
        }
        return answer(accounts.app(self._github.world, app) | given, 201)

    async def choose(self, request: web.Request) -> web.Response:
        """Show the repositories the App may be installed on."""
        repos = list(self._github.world.repos.values())
        return self._pages.page("install_app.html", app=self._app(request), repos=repos)

    async def install(self, request: web.Request) -> web.Response:
        """Install the App on what was chosen, and tell it."""
        app, form = self._app(request), await request.post()
        chosen = {str(name).lower() for name in form.getall("repo", [])}
        repos = [repo for name, repo in self._github.world.repos.items() if name in chosen]
        by_account: dict[str, list[Repo]] = {}
        for repo in repos:
            by_account.setdefault(repo.owner, []).append(repo)
        for there in by_account.values():
            found = [self._github.install(repo, app) for repo in there]
            await self._github.announce_installation(found[0], "created")
        raise web.HTTPSeeOther("/")

    def _app(self, request: web.Request) -> App:
        for app in self._github.world.apps.values():
            if app.slug == request.match_info["slug"]:
                return app
        raise web.HTTPNotFound(text="There is no such App.")


def wrong_with(manifest: Mapping[str, Any], taken: set[str]) -> list[str]:
    """Return what GitHub would refuse a manifest for."""
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
    if not 0 < len(name) <= LONGEST_NAME:
        problems.append(f"Name is too long (maximum is {LONGEST_NAME} characters)")
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
        if not allowed(event, permissions)
    ]
    return problems


def slug_of(name: str) -> str:
    """Return the short name GitHub makes of an App's name."""
    return "-".join("".join(each if each.isalnum() else " " for each in name.lower()).split())


def _is_url(text: object) -> bool:
    parts = urlsplit(text) if isinstance(text, str) else None
    return parts is not None and parts.scheme in {"http", "https"} and bool(parts.hostname)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
