"""The manifests of our GitHub Apps (app.yml, app.relay.yml): permissions and their reasons, events, what is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import yaml

from bot.core import files
from bot.github.responses import MERGE_GROUP
from bot.github.responses import lacks as lacks_event

if TYPE_CHECKING:
    from collections.abc import Mapping

Role = Literal["one", "upstream", "relay"]
FILES = {"upstream": "app.yml", "relay": "app.relay.yml"}
RANKS = {"read": 1, "write": 2, "admin": 3}
# beyond what we ask for: answers on issues that disable tests, where a repository grants it
OPTIONAL = {"issues": "write"}
MAX_NAME = 34  # characters GitHub allows in an App's name
HOOK = "/api/github/webhooks"
_REASONED = re.compile(r"^  (\w+): (\w+) +# (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Permission:
    """One permission, such as checks: write, and the reason for it."""

    name: str
    level: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One App's manifest. `role`: where it works, on upstream, on the backends (relay), or on both (one)."""

    role: Role
    name: str
    description: str
    public: bool
    permissions: tuple[Permission, ...]
    events: tuple[str, ...]
    optional_permissions: tuple[Permission, ...] = ()  # of use where they are granted, as the events
    optional_events: tuple[str, ...] = ()

    @property
    def granted(self) -> dict[str, str]:
        """The permissions as GitHub writes them: name -> level."""
        return {each.name: each.level for each in self.permissions}

    @property
    def useful(self) -> dict[str, str]:
        """All useful permissions, as `granted`, the optional ones included."""
        beyond = {name: level for name, level in OPTIONAL.items() if name in self.granted}
        return self.granted | beyond | {each.name: each.level for each in self.optional_permissions}

    def as_sent(self, *, name: str, public_url: str, redirect_url: str) -> dict[str, Any]:
        """Return the JSON that GitHub's form for new Apps takes."""
        return {
            "name": name,
            "url": public_url,
            "description": self.description,
            "public": self.public,
            "redirect_url": redirect_url,
            "hook_attributes": {"url": public_url + HOOK, "active": True},
            "default_permissions": self.granted,
            "default_events": list(self.events),
        }


def manifest_for(
    role: Role, *, workflow_dispatch: bool = False, statuses: bool = False, server_version: str = ""
) -> Manifest:
    """Return the manifest for an App; with `statuses` it asks for commit statuses.

    With `workflow_dispatch` no backend gets a repository_dispatch, so none has to grant write access to contents.
    `server_version`: of a GitHub Enterprise Server, which refuses events that it does not know.
    """
    if role == "one":
        manifest = _combined(_file("upstream"), _relay(_file("relay"), workflow_dispatch=workflow_dispatch))
    elif role == "relay":
        manifest = _relay(_file(role), workflow_dispatch=workflow_dispatch)
    else:
        manifest = _file(role)
    if statuses:
        manifest = replace(
            manifest,
            permissions=(*manifest.permissions, *manifest.optional_permissions),
            events=(*manifest.events, *manifest.optional_events),
        )
    return _without_merge_queues(manifest) if lacks_event(server_version, MERGE_GROUP) else manifest


def lacks(wanted: Mapping[str, str], granted: Mapping[str, str]) -> list[str]:
    """Return the permissions that are wanted but not granted, as `checks: write`."""
    return [
        f"{name}: {level}"
        for name, level in wanted.items()
        if RANKS.get(granted.get(name, ""), 0) < RANKS[level]
    ]


def unneeded(useful: Mapping[str, str], granted: Mapping[str, str]) -> list[str]:
    """Return the permissions that are granted without need, or beyond the level needed."""
    return [
        f"{name}: {level}"
        for name, level in granted.items()
        if RANKS.get(level, 0) > RANKS.get(useful.get(name, ""), 0)
    ]


def _file(role: str) -> Manifest:
    text = files.manifest_file(FILES[role]).read_text()
    content = yaml.safe_load(text)
    reasons = {name: reason for name, _, reason in _REASONED.findall(text)}

    def permissions(key: str) -> tuple[Permission, ...]:
        asked = content.get(key, {}).items()
        return tuple(Permission(name=name, level=level, reason=reasons[name]) for name, level in asked)

    return Manifest(
        role="relay" if role == "relay" else "upstream",
        name=content["name"],
        description=content["description"],
        public=content["public"],
        permissions=permissions("default_permissions"),
        events=tuple(content["default_events"]),
        optional_permissions=permissions("optional_permissions"),
        optional_events=tuple(content.get("optional_events", ())),
    )


def _relay(manifest: Manifest, *, workflow_dispatch: bool) -> Manifest:
    """Return the backends' manifest, without the write access to contents where it is not needed."""
    if not workflow_dispatch:
        return manifest
    less = Permission(
        name="contents", level="read", reason="to notice pushes to an allowlist that lies there"
    )
    kept = [less if each.name == "contents" else each for each in manifest.permissions]
    return replace(manifest, permissions=tuple(kept))


def _without_merge_queues(manifest: Manifest) -> Manifest:
    events = tuple(event for event in manifest.events if event != "merge_group")
    kept = tuple(each for each in manifest.permissions if each.name != "merge_queues")
    return replace(manifest, events=events, permissions=kept)


def _combined(upstream: Manifest, relay: Manifest) -> Manifest:
    """Return one App with the permissions of both."""
    merged: dict[str, Permission] = {}
    for each in (*upstream.permissions, *relay.permissions):
        before = merged.get(each.name)
        if before is None:
            merged[each.name] = each
        elif each.name != "metadata":
            level = max(before.level, each.level, key=RANKS.__getitem__)
            reason = f"{before.reason}; on backends: {each.reason}"
            merged[each.name] = Permission(name=each.name, level=level, reason=reason)
    return Manifest(
        role="one",
        name=upstream.name,
        description=upstream.description,
        public=relay.public,
        permissions=tuple(merged.values()),
        events=tuple(dict.fromkeys((*upstream.events, *relay.events))),
        optional_permissions=upstream.optional_permissions,
        optional_events=upstream.optional_events,
    )
