"""Which events are worth running on a backend, and how many at once: these keys of an entry, read and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from yaml.nodes import ScalarNode

from bot.oot.allowlist import yaml_values
from bot.oot.allowlist.globs import read_globs
from bot.oot.allowlist.yaml_document import described, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yaml.nodes import Node

    from bot.oot.allowlist.yaml_document import Field, Problems

MAX_PER_DAY, MAX_PARALLEL = 100_000, 1_000
MOST_LABELS = 50
LABEL = r"[^\x00-\x1f\x7f,]{1,50}"  # GitHub's names of labels are no longer
SAMPLE = r"([1-9][0-9]?|100)%"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What an entry says of the events it wants to run. Without any of it, every event is run at once."""

    paths: tuple[str, ...] = ()  # globs of files, one of which must have changed; empty: whatever changed
    paths_pass: bool = False  # whether the gate passes where no such file changed; only at L4
    labels: tuple[str, ...] = ()  # of which a pull request must have one
    not_labels: tuple[str, ...] = ()  # of which it may have none
    draft: bool = True  # whether drafts are run
    max_per_day: int | None = None  # dispatches within 24 hours
    max_parallel: int | None = None  # dispatches that run at once
    sample: int = 100  # per cent of the pushed commits
    branches: tuple[str, ...] = ()  # globs of the base branch, or of the pushed one; empty: every branch
    skip_if_same_tree: bool = False  # whether a commit with the same files as one that passed is not run

    @property
    def limited(self) -> bool:
        """Whether its dispatches may have to wait for a machine."""
        return self.max_per_day is not None or self.max_parallel is not None

    @property
    def selective(self) -> bool:
        """Whether some events are not dispatched."""
        return not self.draft or self.sample < 100 or bool(self._lists) or self.skip_if_same_tree

    @property
    def _lists(self) -> tuple[str, ...]:
        return self.paths + self.labels + self.not_labels + self.branches


class SelectionKey(NamedTuple):
    """How a key's value is read, at which levels it may stand, and why not at the others."""

    read: yaml_values.Reader
    levels: tuple[int, ...]
    why: str = ""


def _labels(node: Node, problems: Problems) -> tuple[str, ...] | None:
    """Read names of labels, each once, whatever its case."""
    found = yaml_values.words(node, problems)
    wrong = [(at, word) for at, word in found if not re.fullmatch(LABEL, word)]
    for at, word in wrong:
        problems.add(at, f"{shown(word)} is no label: write up to 50 characters without commas")
    if not found:
        problems.add(node, "the list is empty: name at least one label, or leave the key out")
    if len(found) > MOST_LABELS:
        problems.add(found[MOST_LABELS][0], f"more than {MOST_LABELS} labels: shorten the list")
    return tuple({word.casefold(): word for _, word in found}.values())


def _sample(node: Node, problems: Problems) -> int | None:
    """Read a share, as `10%`."""
    if isinstance(node, ScalarNode) and re.fullmatch(SAMPLE, node.value):
        return int(node.value.removesuffix("%"))
    problems.add(node, f"{described(node)} is no share of the commits: write 1% to 100%, as in `10%`")
    return None


_EVERY, _REPORTING, _UNBLOCKING = (1, 2, 3, 4), (2, 3, 4), (1, 2, 3)
_GATE = "its gate waits for it on every pull request"
KEYS = MappingProxyType(
    {
        "paths": SelectionKey(read_globs, _EVERY),
        "paths_pass": SelectionKey(yaml_values.truth, (4,), "only L4 has a gate to pass"),
        "labels": SelectionKey(_labels, _UNBLOCKING, _GATE),
        "not_labels": SelectionKey(_labels, _UNBLOCKING, _GATE),
        "draft": SelectionKey(yaml_values.truth, _EVERY),
        "max_per_day": SelectionKey(yaml_values.number(MAX_PER_DAY), _EVERY),
        "max_parallel": SelectionKey(
            yaml_values.number(MAX_PARALLEL), _REPORTING, "L1 does not report when it has ended"
        ),
        "sample": SelectionKey(_sample, _EVERY),
        "branches": SelectionKey(yaml_values.refs, _UNBLOCKING, _GATE),
        "skip_if_same_tree": SelectionKey(
            yaml_values.truth, (2, 3), "L1 has no results to take over, and a gate passes by a run of its own"
        ),
    }
)
_OF_PULLS = ("labels", "not_labels", "draft")


def check_selection(
    found: Mapping[str, Any], fields: Mapping[str, Field], events: frozenset[str] | None, problems: Problems
) -> None:
    """Add what is wrong with keys that stand beside one another; `events` None: they are not readable."""
    if "paths_pass" in found and "paths" not in fields:
        fix = "add `paths`, or remove it"
        problems.add(fields["paths_pass"].at, f"`paths_pass` is about `paths`, and there are none: {fix}")
    both = {name.casefold() for name in found.get("labels") or ()}
    for name in found.get("not_labels") or ():
        if name.casefold() in both:
            fix = "remove it from one of the two"
            problems.add(fields["not_labels"].at, f"{shown(name)} is wanted and refused at once: {fix}")
    if events is None:
        return
    for name in _OF_PULLS:
        if name in found and "pull_request" not in events:
            fix = f"add `pull_request` to `events`, or remove `{name}`"
            problems.add(fields[name].at, f"`{name}` is about pull requests, and none are asked for: {fix}")
    if "sample" in found and "push" not in events:
        fix = "add `push` to `events`, or remove `sample`"
        problems.add(fields["sample"].at, f"`sample` is about pushes, and none are asked for: {fix}")
