"""The operator's answers to `ootbot init`, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from bot.core.links import is_enterprise_server, web_url
from bot.github import manifest

if TYPE_CHECKING:
    from bot.github.manifest import Manifest, Role

GITHUB = "https://api.github.com"
RESIDENCY = ".ghe.com"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of `ootbot init`."""

    upstream_repo: str
    public_url: str  # without a slash at the end
    allowlist: str
    data_dir: str = "data"
    github_api_url: str = GITHUB
    organization: str = ""  # who owns the Apps; empty: whoever is signed in
    name: str = ""  # of the App; empty: made of the upstream owner's
    roles: tuple[Role, ...] = ("one",)
    workflow_dispatch: bool = False
    private: bool = False  # all backends belong to the Apps' owner
    proxy: str | None = None  # for calls out

    def manifest(self, role: Role) -> Manifest:
        """Return what an App is to ask for."""
        return manifest.read(role, workflow_dispatch=self.workflow_dispatch)

    def app_name(self, role: Role) -> str:
        """Return the name to suggest: App names are unique on all of GitHub."""
        suffix = " relay" if role == "relay" else ""
        base = self.name or f"ootbot {self.upstream_repo.partition('/')[0]}"
        return base[: manifest.MAX_NAME - len(suffix)].rstrip() + suffix

    @property
    def shut_out(self) -> str | None:
        """Upstream's owner, where upstream's App can be installed by its own owner alone and that may be another."""
        owner = self.upstream_repo.partition("/")[0]
        if self.organization.casefold() == owner.casefold():
            return None
        apps = [self.manifest(role) for role in self.roles if role != "relay"]
        return owner if any(self.private or not app.public for app in apps) else None

    @property
    def github_url(self) -> str:
        """Where GitHub's pages are: beside its API."""
        return web_url(self.github_api_url)

    def new_app_url(self, state: str) -> str:
        """Return the page that makes a new App of a manifest."""
        owner = f"/organizations/{self.organization}" if self.organization else ""
        return f"{self.github_url}{owner}/settings/apps/new?{urlencode({'state': state})}"


def issuer_of(api_url: str) -> str | None:
    """Return the OIDC issuer of a GitHub's Actions jobs; None for github.com, the default."""
    pages = web_url(api_url)
    if is_enterprise_server(api_url):
        return f"{pages}/_services/token"
    host = urlsplit(pages).netloc
    return f"https://token.actions.{host}" if host.endswith(RESIDENCY) else None
