"""Whether a backend is sent a commit, and the rule that decides: one function, to dispatch and to explain."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from bot.core.feature import Finding, ok, warning
from bot.oot.allowlist import versions as allowlists
from bot.oot.allowlist.entry import Level, matches_ref
from bot.oot.verdict.pull_state import labels_ask_for
from bot.oot.verdict.verdict import SKIPPED_BY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from bot.oot.allowlist.entry import Entry
    from bot.ops.doctor import Target

Rule = Literal["events", "label", "draft", "branches", "labels", "not_labels", "sample", "paths", "tree"]
Match = tuple[str, str]  # a changed file, and the glob that chose it
NO_MATCHES: Mapping[tuple[str, ...], Match | None] = MappingProxyType({})
DOCTOR_NAME = "selection"


@dataclass(frozen=True, kw_only=True)
class SameTree:
    """A commit with the same files, on which a backend has passed."""

    sha: str
    url: str  # of its results


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What is known of a commit that backends may be sent."""

    event: Literal["pull_request", "push"]
    sha: str
    branch: str | None  # the base branch of a pull request, or the pushed one; None: a tag
    labels: frozenset[str] = frozenset()
    draft: bool = False
    # by the globs of the entries: what they chose of the changed files; globs that are missing were not held against
    # them, as the files are not known in full
    matches: Mapping[tuple[str, ...], Match | None] = field(default_factory=lambda: NO_MATCHES)
    same: Mapping[str, SameTree] = field(default_factory=dict)  # by backend, case folded


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether a backend is sent a commit."""

    send: bool
    rule: Rule
    why: str

    @property
    def state(self) -> str:
        """The state of a dispatch that is not sent."""
        return f"{SKIPPED_BY}{self.rule}"


def decide(entry: Entry, commit: Commit, *, prefixes: Sequence[str]) -> Decision:
    """Return whether a backend is sent a commit; `prefixes` are those of the labels that ask for a device.

    The first rule against it decides. The device's label overrides all rules but reusable results.
    """
    if not entry.wants(commit.event):
        what = "pull requests" if commit.event == "pull_request" else "pushes"
        return Decision(send=False, rule="events", why=f"it takes no part in {what}")
    asked = entry.device is not None and labels_ask_for(entry.device, commit.labels, prefixes)
    against = [] if asked else list(_against(entry, commit))
    if same := commit.same.get(entry.key) if entry.skip_if_same_tree else None:
        why = f"it has passed on commit {same.sha[:7]}, which has the same files: {same.url}"
        against.append(Decision(send=False, rule="tree", why=why))
    if against:
        return against[0]
    if asked:
        return Decision(send=True, rule="label", why=f"the label for {entry.device} asks for it")
    return _for(entry, commit)


def heeds_paths(entry: Entry) -> bool:
    """Return whether an entry's `paths` count: a blocking backend always runs, unless the gate may pass without it."""
    return bool(entry.paths) and (entry.level < Level.L4 or entry.paths_pass)


def in_sample(sha: str, percent: int) -> bool:
    """Return whether a commit is in a sample of this share; all processes and backends agree."""
    drawn = int.from_bytes(hashlib.sha256(sha.encode()).digest()[:8], "big")
    return drawn * 100 < percent * 2**64


async def check_selection(target: Target) -> list[Finding]:
    """List the blocking backends that run whatever changed, and those that the gate can pass without."""
    if not await target.has_database():
        return []
    async with target.store.read() as tx:
        allowlist = await allowlists.read_in_force(tx)
    findings = []
    for entry in allowlist.entries if allowlist else ():
        if entry.paths and not heeds_paths(entry):
            words = f"{entry.label} blocks, so its `paths` are ignored: it runs every pull request"
            todo = "add `paths_pass: true` to let the gate pass without it, or remove `paths`"
            findings.append(warning(DOCTOR_NAME, words, todo))
        elif entry.paths_pass:
            words = f"the gate passes without {entry.label} where no file of its `paths` changed"
            findings.append(ok(DOCTOR_NAME, words))
    return findings


def _against(entry: Entry, commit: Commit) -> Iterator[Decision]:
    """Yield the decisions against sending a commit."""
    labels = {label.casefold() for label in commit.labels}
    if commit.event == "pull_request":
        if commit.draft and not entry.draft:
            yield Decision(send=False, rule="draft", why="it is a draft")
        if entry.labels and not labels & _folded(entry.labels):
            words = " or ".join(f"`{label}`" for label in entry.labels[:3])
            yield Decision(send=False, rule="labels", why=f"it has no label {words}")
        if excluded := labels & _folded(entry.not_labels):
            yield Decision(send=False, rule="not_labels", why=f"it has the label `{min(excluded)}`")
    if entry.branches and commit.branch is not None and not _on_branch(entry, commit.branch):
        yield Decision(send=False, rule="branches", why=f"the branch {commit.branch} is none of its branches")
    if commit.event == "push" and not in_sample(commit.sha, entry.sample):
        yield Decision(send=False, rule="sample", why=f"it is not among the {entry.sample} % that are run")
    if heeds_paths(entry) and commit.matches.get(entry.paths, ()) is None:
        yield Decision(send=False, rule="paths", why="no file of interest changed")


def _for(entry: Entry, commit: Commit) -> Decision:
    """Return the decision for sending a commit that no rule is against."""
    if entry.paths and not heeds_paths(entry):
        why = "its `paths` are not heeded: it blocks, and `paths_pass` does not let the gate pass without it"
        return Decision(send=True, rule="paths", why=why)
    if entry.paths:
        match = commit.matches.get(entry.paths)
        why = f"{match[0]} matches {match[1]}" if match else "not all changed files are known"
        return Decision(send=True, rule="paths", why=why)
    what = "pull requests" if commit.event == "pull_request" else "pushes"
    return Decision(send=True, rule="events", why=f"it takes part in {what}")


def _folded(labels: Collection[str]) -> set[str]:
    return {label.casefold() for label in labels}


def _on_branch(entry: Entry, branch: str) -> bool:
    return any(matches_ref(f"refs/heads/{branch}", pattern) for pattern in entry.branches)
