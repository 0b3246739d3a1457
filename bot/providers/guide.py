"""What to enter in the forms of other CIs, so that their events come in. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.core.setting_types import LOOPBACK
from bot.providers import events
from bot.providers.settings import BUILDKITE, CIRCLECI, providers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.core.settings import Settings
    from bot.providers.settings import Provider

PATHS = {CIRCLECI: "/api/circleci/webhooks", BUILDKITE: "/api/buildkite/webhooks"}
WHERE = {
    CIRCLECI: "for each project: Project Settings, Webhooks, Add Webhook",
    BUILDKITE: "Settings, Notification Services, Add a Webhook",
}


@dataclass(frozen=True, kw_only=True)
class Guide:
    """The form of one entry of the settings."""

    provider: str
    where: str  # the form is found
    fields: list[tuple[str, str]]
    projects: Mapping[str, str]  # with their repositories


def make_guides(settings: Settings) -> list[Guide]:
    """Return the forms of all entries, in their order."""
    return [_guide(one, settings.url) for one in providers_of(settings)]


def is_unreachable(settings: Settings) -> bool:
    """Whether the addresses to enter are of this machine only: no other CI reaches them."""
    return urlsplit(settings.url).hostname in LOOPBACK


def _guide(one: Provider, url: str) -> Guide:
    secret = f"the value of {one.variable}"
    if len(one.secrets) > 1:
        secret = f"the new value of {one.variable}, which holds two while they are rotated"
    address = f"{url}{PATHS[one.kind]}"
    if one.kind == CIRCLECI:
        fields = [("URL", address), ("Secret", secret), ("Events", " and ".join(events.CIRCLECI_EVENTS))]
    else:
        fields = [
            ("URL", address),
            ("Token", f"{secret}; send it as X-Buildkite-Signature, not as X-Buildkite-Token"),
            ("Events", "all of build.*, job.* and agent.*"),
            ("Pipelines", "only those below, where the organization has others"),
            ("Files", _files(one)),
        ]
    return Guide(provider=one.kind, where=WHERE[one.kind], fields=fields, projects=one.projects)


def _files(one: Provider) -> str:
    if not one.api_token:
        return "none are fetched: api_token_env would name the variable with an API token"
    what = "logs of failed jobs and reports of tests" if one.junit else "logs of failed jobs"
    return f"{what}, by the API token in {one.api_variable} with {' and '.join(one.api_scopes)}"
