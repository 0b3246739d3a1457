"""What has been agreed with one backend? The values an allowlist consists of once it is read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase

EVENTS = ("pull_request", "push", "nightly")
POLICIES = ("all", "trusted")
CHECKS = ("backend", "jobs")
CONCLUSIONS = ("neutral", "failure")
CALLBACK_TOKENS = ("required", "optional")
STATIC_KEYS = ("refused", "allowed")
DISPATCHES = ("repository", "workflow")


class Level(IntEnum):
    """How far a backend takes part; each level includes the ones below it."""

    L1 = 1  # events go out, nothing comes back
    L2 = 2  # results on the HUD
    L3 = 3  # check runs that never block, on pull requests that carry the device's label
    L4 = 4  # blocking check runs on every pull request


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One backend and its terms.

    The parser fills in what depends on the level; the defaults here are the strict ones, so that
    an entry made by hand never trusts more than one that was read.
    """

    repo: str  # owner/name as written; compare by `key`
    level: int  # a Level
    line: int  # where the file names the repository, counted from 1
    device: str | None = None  # always present at L3
    oncalls: tuple[str, ...] = ()  # logins, without @, none twice
    repository_id: int | None = None  # when present, the only repository this name may stand for
    events: frozenset[str] = frozenset({"pull_request"})  # of EVENTS, never empty
    refs: tuple[str, ...] = ()  # globs a pushed ref must match; empty: every ref
    policy: str = "all"  # all | trusted
    checks: str = "backend"  # backend | jobs
    conclusion: str = "neutral"  # neutral | failure: how an L3 failure concludes
    confirm: bool = True  # whether green needs GitHub's own word; as read, true only at L4
    callback_token: str = "required"  # noqa: S105 - a choice of words, not a secret
    static_key: str = "refused"  # refused | allowed: whether one is good for reports; as read, allowed at L2
    dispatch: str = "repository"  # repository | workflow
    workflow_file: str | None = None  # present exactly with dispatch: workflow
    job_timeout: int | None = None  # seconds; None: the JOB_TIMEOUT setting
    start_timeout: int | None = None  # seconds; None: the START_TIMEOUT setting
    rate_limit: int | None = None  # reports a minute; None: the RATE_LIMIT_PER_MIN setting

    @property
    def key(self) -> str:
        """The name to compare and index by: GitHub ignores the case of repository names."""
        return self.repo.casefold()

    @property
    def label(self) -> str:
        """The name people know it by: the device where it has one, else owner/repo."""
        return self.device or self.repo

    def wants(self, event: str, ref: str | None = None) -> bool:
        """Whether this backend takes part in `event`; `ref` (full) is looked at for pushes only.

        A pattern that starts with `refs/` is held against the full ref, any other against the
        branch name, so `v*` never lets a tag through. Without `ref` no pattern is consulted.
        """
        if event not in self.events:
            return False
        if event != "push" or ref is None or not self.refs:
            return True
        return any(_matches(ref, pattern) for pattern in self.refs)


def _matches(ref: str, pattern: str) -> bool:
    full = pattern if pattern.startswith("refs/") else f"refs/heads/{pattern}"
    return fnmatchcase(ref, full)
