"""Today's parser of the allowlist, written after what it is known to take, to be held against ours.

A file is a mapping of L1 to L4, each of which may be missing or empty. L1, L2 and L4 are lists whose items are
`owner/repo` or a mapping of one `owner/repo` to what is said of it; L3 maps devices to mappings of `owner/repo` to the
same. Said of a repository are its on-calls (a list, or a text with commas), or a mapping of `oncalls` and `events` and
nothing else. `events` is a list of `pull_request` and `nightly`, without repetition; both, if it is left out. A
repository comes once in the file.
"""

from __future__ import annotations

from typing import NamedTuple

import yaml

EVENTS = ("pull_request", "nightly")


class RefusedError(Exception):
    """The file is not taken."""


class Listed(NamedTuple):
    """What is known of a repository; pushes are sent to whoever gets pull requests."""

    level: str
    device: str | None
    oncalls: tuple[str, ...]
    dispatched: bool


def read(text):
    """Return what a file says of each repository; RefusedError if it is not taken."""
    file = yaml.safe_load(text) or {}
    demand(isinstance(file, dict))
    found = {}
    for level in ("L1", "L2", "L4"):
        section = file.get(level) or []
        demand(isinstance(section, list))
        for item in section:
            if isinstance(item, dict):
                demand(len(item) == 1)
            for repo, said in item.items() if isinstance(item, dict) else [(item, None)]:
                add(found, repo, said, level, None)
    devices = file.get("L3") or {}
    demand(isinstance(devices, dict))
    for device, repos in devices.items():
        demand(str(device).strip() and isinstance(repos, dict))
        for repo, said in repos.items():
            add(found, repo, said, "L3", str(device).strip())
    return found


def add(found, repo, said, level, device):
    demand(isinstance(repo, str))
    name = repo.strip().strip("/")
    demand("/" in name and name not in found)
    if isinstance(said, dict):
        demand(said.keys() <= {"oncalls", "events"})
        oncalls, events = said.get("oncalls"), said.get("events")
    else:
        oncalls, events = said, None
    found[name] = Listed(level, device, people(oncalls), "pull_request" in named(events))


def people(said):
    if said is None:
        return ()
    demand(isinstance(said, str | list))
    words = said.split(",") if isinstance(said, str) else map(str, said)
    return tuple(word.strip() for word in words if word.strip())


def named(events):
    if events is None:
        return EVENTS
    demand(isinstance(events, list) and events)
    demand(all(isinstance(event, str) and event.strip() in EVENTS for event in events))
    demand(len({event.strip() for event in events}) == len(events))
    return [event.strip() for event in events]


def demand(condition):
    if not condition:
        raise RefusedError
