"""The files that `ootbot init` writes: keys, settings and an allowlist, readable by their owner alone."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from bot.core.errors import Misconfigured
from bot.core.escaping import is_enterprise_server, web_url
from bot.core.setting_types import LOOPBACK
from bot.github import manifest
from bot.oot.allowlist.allowlist import parse_github_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bot.github.manifest import Manifest, Role
    from bot.ops.registration import RegisteredApp

GITHUB = "https://api.github.com"
RESIDENCY = ".ghe.com"
PRIVATE = 0o600
NOBODY_YET = """\
# Which backends take part, and at which level: see docs/allowlist.md. None yet.
L1: []
"""


@dataclass(frozen=True, kw_only=True)
class WantedApp:
    """The options of `ootbot init`."""

    upstream_repo: str
    public_url: str  # without a slash at the end
    allowlist: str
    data_dir: str = "data"
    github_api_url: str = GITHUB
    organization: str = ""  # who owns the Apps; empty: the user who is signed in
    name: str = ""  # of the App; empty: made of the upstream owner's
    roles: tuple[Role, ...] = ("one",)
    workflow_dispatch: bool = False
    statuses: bool = False  # commit statuses are asked for
    private: bool = False  # all backends belong to the Apps' owner
    proxy: str | None = None  # for calls out
    server_version: str = ""  # of a GitHub Enterprise Server

    def manifest(self, role: Role) -> Manifest:
        """Return the manifest that an App is registered with."""
        return manifest.manifest_for(
            role,
            workflow_dispatch=self.workflow_dispatch,
            statuses=self.statuses and role != "relay",
            server_version=self.server_version,
        )

    def app_name(self, role: Role) -> str:
        """Return the name to suggest: App names are unique on all of GitHub."""
        suffix = " relay" if role == "relay" else ""
        base = self.name or f"ootbot {self.upstream_repo.partition('/')[0]}"
        return base[: manifest.MAX_NAME - len(suffix)].rstrip() + suffix

    @property
    def shut_out(self) -> str | None:
        """Upstream's owner, if only the owner of upstream's App could install it and that may be somebody else."""
        owner = self.upstream_repo.partition("/")[0]
        if self.organization.casefold() == owner.casefold():
            return None
        apps = [self.manifest(role) for role in self.roles if role != "relay"]
        return owner if any(self.private or not app.public for app in apps) else None

    @property
    def github_url(self) -> str:
        """The address of GitHub's pages, derived from its API's."""
        return web_url(self.github_api_url)

    def new_app_url(self, state: str) -> str:
        """Return the page that creates an App from a manifest."""
        owner = f"/organizations/{self.organization}" if self.organization else ""
        return f"{self.github_url}{owner}/settings/apps/new?{urlencode({'state': state})}"


def issuer_of(api_url: str) -> str | None:
    """Return the OIDC issuer of a server's Actions jobs; None for github.com, the default."""
    pages = web_url(api_url)
    if is_enterprise_server(api_url):
        return f"{pages}/_services/token"
    host = urlsplit(pages).netloc
    return f"https://token.actions.{host}" if host.endswith(RESIDENCY) else None


@dataclass(frozen=True, kw_only=True)
class SettingsFiles:
    """The files in one folder. As environment (`env`) for systemd and containers, else as ootbot.toml."""

    folder: Path
    env: bool = False

    @property
    def settings(self) -> Path:
        """The settings, with the webhook secret in them."""
        return self.folder / ("ootbot.env" if self.env else "ootbot.toml")

    def key(self, role: Role) -> Path:
        """The file of an App's private key."""
        return self.folder / ("ootbot-relay.pem" if role == "relay" else "ootbot.pem")

    def allowlist(self, wanted: WantedApp) -> str:
        """Return where the allowlist is written: a file, or `owner/repo:path@ref` on GitHub."""
        return (
            str(self.folder / wanted.allowlist)
            if parse_github_source(wanted.allowlist) is None
            else wanted.allowlist
        )

    @property
    def lacks_relay(self) -> bool:
        """Whether one App is set up and the backends' is not."""
        return self.settings.exists() and "relay_app_id" not in self.settings.read_text().lower()

    def require_new(self, roles: tuple[Role, ...]) -> None:
        """Raise Misconfigured for files that exist, or cannot be written: a lost key cannot be fetched again."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            what = f"{self.folder} cannot be written ({error.strerror})"
            todo = 'make it yours first (`sudo install -d -o "$(id -u)" FOLDER`), or choose another --folder'
            raise Misconfigured([f"{what}: {todo}"]) from error
        kept = () if roles == ("relay",) else (self.settings,)
        there = [path for path in (*kept, *map(self.key, roles)) if path.exists()]
        if there:
            raise Misconfigured(
                [f"{path} is there already: move it away, or choose another --folder" for path in there]
            )

    def begin(self, wanted: WantedApp, role: Role, made: RegisteredApp) -> None:
        """Write the key and the settings of the first App, ready for `ootbot serve`."""
        write_new(self.key(role), made.private_key)
        write_new(self.settings, self._lines(_settings_of_first(wanted, made, self.key(role))))
        if (
            parse_github_source(wanted.allowlist) is None
            and not (path := self.folder / wanted.allowlist).exists()
        ):
            path.write_text(NOBODY_YET)

    def add_relay(self, made: RegisteredApp) -> None:
        """Write the key of the second App and add it to the settings."""
        key = self.key("relay")
        write_new(key, made.private_key)
        lines = self._lines(
            {
                "relay_app_id": made.app_id,
                "relay_private_key_path": str(key.resolve()),
                "relay_webhook_secret": made.webhook_secret,
            }
        )
        with self.settings.open("a") as file:
            file.write(lines)

    def _lines(self, values: Mapping[str, str | int]) -> str:
        if self.env:
            return "".join(f"OOTBOT_{name.upper()}={value}\n" for name, value in values.items())
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def write_new(path: Path, text: str) -> None:
    """Write a file that only its owner may read; raises FileExistsError rather than replace one."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE), "w") as file:
        file.write(text)


def _settings_of_first(wanted: WantedApp, made: RegisteredApp, key: Path) -> dict[str, str | int]:
    local = parse_github_source(wanted.allowlist) is None
    values: dict[str, str | int] = {
        "app_id": made.app_id,
        "private_key_path": str(key.resolve()),
        "webhook_secret": made.webhook_secret,
        "upstream_repo": wanted.upstream_repo,
        "allowlist": str((key.parent / wanted.allowlist).resolve()) if local else wanted.allowlist,
        "data_dir": str((key.parent / wanted.data_dir).resolve()),
        "public_url": wanted.public_url,
        "admin_token": secrets.token_urlsafe(32),
    }
    parts = urlsplit(wanted.public_url)
    if parts.hostname in LOOPBACK and parts.port:
        values["port"] = parts.port
    if wanted.proxy:
        values["proxy"] = wanted.proxy
    if wanted.github_api_url != GITHUB:
        values["github_api_url"] = wanted.github_api_url
    if issuer := issuer_of(wanted.github_api_url):
        claims = {"check_run_id_claim": ""} if issuer.endswith("/_services/token") else {}
        values["oidc_issuers"] = json.dumps([{"issuer": issuer, "repository_claim": "repository", **claims}])
    return values
