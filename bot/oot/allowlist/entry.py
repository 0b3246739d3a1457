"""One backend's entry: its values once it is read, and the keys it may have at which level."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from yaml.nodes import MappingNode, ScalarNode

from bot.core.settings import PULL_ACTIONS
from bot.oot.allowlist import yaml_document
from bot.oot.allowlist.yaml_document import (
    describe_value,
    is_empty,
    line_of,
    quote_word,
    read_globs,
    read_pairs,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from yaml.nodes import Node

    from bot.oot.allowlist.yaml_document import Field, Problems

RELAY_EVENTS = frozenset({"pull_request", "nightly"})  # all that its parser knows
MAX_PER_DAY, MAX_PARALLEL = 100_000, 1_000
MOST_LABELS = 50
LABEL = r"[^\x00-\x1f\x7f,]{1,50}"  # GitHub's names of labels are no longer
SAMPLE = r"([1-9][0-9]?|100)%"
_EVERY, _REPORTING, _UNBLOCKING = (1, 2, 3, 4), (2, 3, 4), (1, 2, 3)
_GATE = "its gate waits for it on every pull request"
_OF_PULLS = ("labels", "not_labels", "draft")
EVENTS = ("pull_request", "push", "nightly")
DEFAULT_EVENTS = frozenset({"pull_request"})
POLICIES = ("all", "trusted")
CHECKS = ("backend", "jobs")
CONCLUSIONS = ("neutral", "failure")
CALLBACK_TOKENS = ("required", "optional")
STATIC_KEYS = ("refused", "allowed")
ANSWERS = ("all", "some")
NIGHTLY = ("accepted", "refused")
DISPATCHES = ("repository", "workflow")
BISECT_MODES = ("off", "manual", "auto")
Fields = dict[str, "Field"]  # an entry spelled out: key -> where it is named, what it holds
MAX_ID = 2**63 - 1
MAX_RATE = 100_000
MAX_BISECT_RUNS, MAX_BISECT_PARALLEL, MAX_BISECT_HOURS = 1_000, 10, 24 * 30
_SILENT = "nothing comes back from L1"
BISECT_KEYS = MappingProxyType(
    {
        "mode": yaml_document.choice(BISECT_MODES),
        "per_day": yaml_document.number(MAX_BISECT_RUNS),
        "parallel": yaml_document.number(MAX_BISECT_PARALLEL),
        "max_hours": yaml_document.number(MAX_BISECT_HOURS),
        "comment": yaml_document.truth,
    }
)
_UNCHECKED = "only L3 and L4 have check runs"


class SelectionKey(NamedTuple):
    """How a key's value is read, at which levels it may stand, and why not at the others."""

    read: yaml_document.Reader
    levels: tuple[int, ...]
    why: str = ""


class Level(IntEnum):
    """How far a backend takes part; each level includes the ones below it."""

    L1 = 1  # events go out, nothing comes back
    L2 = 2  # results on the HUD
    L3 = 3  # check runs that never block, on pull requests that carry the device's label
    L4 = 4  # blocking check runs on every pull request


@dataclass(frozen=True, kw_only=True)
class BisectTerms:
    """How the commit that broke a backend may be searched by running the backend."""

    mode: str = "manual"  # of BISECT_MODES: never, on request, or by itself once a job is broken
    per_day: int = 20  # runs
    parallel: int = 2  # runs at once, of one search
    max_hours: int = 48  # after which a search is given up
    comment: bool = False  # whether the culprit's pull request gets a comment


EVERY = frozenset(Level)
REPORTING = frozenset({Level.L2, Level.L3, Level.L4})
CHECKED = frozenset({Level.L3, Level.L4})


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key: how its value is read, where it may stand, and why not elsewhere."""

    read: yaml_document.Reader
    levels: frozenset[Level] = EVERY
    why: str = ""


def reads_as_relay(default_events: frozenset[str]) -> bool:
    """Whether entries are read as the relay's parser reads them."""
    return "push" in default_events


def meant_events(written: frozenset[str] | None, default_events: frozenset[str]) -> frozenset[str]:
    """Return the events an entry takes part in; `written` is None if it names none."""
    if written is None:
        return default_events
    of_relay = reads_as_relay(default_events) and written <= RELAY_EVENTS
    return written | {"push"} if of_relay and "pull_request" in written else written


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which events an entry wants to run, and how many at once. By default every event is run at once."""

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


def _labels(node: Node, problems: Problems) -> tuple[str, ...] | None:
    """Read names of labels, each once, whatever its case."""
    labels = yaml_document.words(node, problems)
    wrong = [(at, word) for at, word in labels if not re.fullmatch(LABEL, word)]
    for at, word in wrong:
        problems.add(at, f"{quote_word(word)} is no label: write up to 50 characters without commas")
    if not labels:
        problems.add(node, "the list is empty: name at least one label, or leave the key out")
    if len(labels) > MOST_LABELS:
        problems.add(labels[MOST_LABELS][0], f"more than {MOST_LABELS} labels: shorten the list")
    return tuple({word.casefold(): word for _, word in labels}.values())


def _sample(node: Node, problems: Problems) -> int | None:
    """Read a share, as `10%`."""
    if isinstance(node, ScalarNode) and re.fullmatch(SAMPLE, node.value):
        return int(node.value.removesuffix("%"))
    problems.add(node, f"{describe_value(node)} is no share of the commits: write 1% to 100%, as in `10%`")
    return None


SELECTION_KEYS = MappingProxyType(
    {
        "paths": SelectionKey(read_globs, _EVERY),
        "paths_pass": SelectionKey(yaml_document.truth, (4,), "only L4 has a gate to pass"),
        "labels": SelectionKey(_labels, _UNBLOCKING, _GATE),
        "not_labels": SelectionKey(_labels, _UNBLOCKING, _GATE),
        "draft": SelectionKey(yaml_document.truth, _EVERY),
        "max_per_day": SelectionKey(yaml_document.number(MAX_PER_DAY), _EVERY),
        "max_parallel": SelectionKey(
            yaml_document.number(MAX_PARALLEL), _REPORTING, "L1 does not report when it has ended"
        ),
        "sample": SelectionKey(_sample, _EVERY),
        "branches": SelectionKey(yaml_document.refs, _UNBLOCKING, _GATE),
        "skip_if_same_tree": SelectionKey(
            yaml_document.truth,
            (2, 3),
            "L1 has no results to take over, and a gate passes by a run of its own",
        ),
    }
)


def check_selection(
    values: Mapping[str, Any], fields: Mapping[str, Field], events: frozenset[str] | None, problems: Problems
) -> None:
    """Add what is wrong with keys in combination; `events` is None if they cannot be read."""
    if "paths_pass" in values and "paths" not in fields:
        fix = "add `paths`, or remove it"
        problems.add(fields["paths_pass"].at, f"`paths_pass` is about `paths`, and there are none: {fix}")
    both = {name.casefold() for name in values.get("labels") or ()}
    for name in values.get("not_labels") or ():
        if name.casefold() in both:
            fix = "remove it from one of the two"
            problems.add(fields["not_labels"].at, f"{quote_word(name)} is wanted and refused at once: {fix}")
    if events is None:
        return
    for name in _OF_PULLS:
        if name in values and "pull_request" not in events:
            fix = f"add `pull_request` to `events`, or remove `{name}`"
            problems.add(fields[name].at, f"`{name}` is about pull requests, and none are asked for: {fix}")
    if "sample" in values and "push" not in events:
        fix = "add `push` to `events`, or remove `sample`"
        problems.add(fields["sample"].at, f"`sample` is about pushes, and none are asked for: {fix}")


@dataclass(frozen=True, kw_only=True)
class Entry(Selection):
    """One backend and its terms.

    The parser fills in what depends on the level; the defaults here are the strict ones, so that
    an entry made by hand never trusts more than one that was read.
    """

    repo: str  # owner/name as written; compare by `key`
    level: int  # a Level
    line: int  # where the file names the repository, counted from 1
    device: str | None = None  # always present at L3
    aka: tuple[str, ...] = ()  # further words for the device in the names of tests, none twice
    shares_device: bool = False  # so another L3 backend is asked for by the same label
    oncalls: tuple[str, ...] = ()  # logins, without @, none twice
    repository_id: int | None = None  # when present, the only repository this name may stand for
    events: frozenset[str] = DEFAULT_EVENTS  # of EVENTS, never empty
    actions: frozenset[str] | None = None  # of PULL_ACTIONS, never empty; None: the PULL_ACTIONS setting
    refs: tuple[str, ...] = ()  # globs a pushed ref must match; empty: every branch
    deletions: bool = False  # whether deletions of these refs are pushes too
    nightly: str = "accepted"  # accepted | refused: reports on runs that were not dispatched
    policy: str = "all"  # all | trusted
    checks: str = "backend"  # backend | jobs
    conclusion: str = "neutral"  # neutral | failure: how an L3 failure concludes
    confirm: bool = True  # whether green needs GitHub's own word; as read, true only at L4
    callback_token: str = "required"  # noqa: S105 - a choice of words, not a secret
    static_key: str = "refused"  # refused | allowed: whether one is good for reports; as read, allowed at L2
    answers: str = "all"  # all | some: whether every dispatch is answered; as read, some below L4
    lists_pushes: bool = True  # as read, false where it gets them by the DEFAULT_EVENTS setting alone
    dispatch: str = "repository"  # repository | workflow
    workflow_file: str | None = None  # present exactly with dispatch: workflow
    job_timeout: int | None = None  # seconds; None: the JOB_TIMEOUT setting
    start_timeout: int | None = None  # seconds; None: the START_TIMEOUT setting
    rate_limit: int | None = None  # reports a minute; None: the RATE_LIMIT_PER_MIN setting
    bisect: BisectTerms = BisectTerms()

    @property
    def key(self) -> str:
        """The name to compare and index by: GitHub ignores the case of repository names."""
        return self.repo.casefold()

    @property
    def label(self) -> str:
        """The name people know it by: the device where it has one of its own, else owner/repo."""
        return self.repo if self.shares_device else self.device or self.repo

    def wants(self, event: str, ref: str | None = None) -> bool:
        """Whether this backend takes part in `event`; `ref` (full) is looked at for pushes only.

        A pattern that starts with `refs/` is held against the full ref, any other against the
        branch name, so `v*` never lets a tag through; nor does an entry without patterns.
        Without `ref` no pattern is consulted.
        """
        if event not in self.events:
            return False
        if event != "push" or ref is None:
            return True
        return any(matches_ref(ref, pattern) for pattern in self.refs or ("*",))

    def must_answer(self, event: str) -> bool:
        """Whether silence on such a dispatch is a failure: not on pushes that it gets without having listed them."""
        return self.answers == "all" and (event != "push" or self.lists_pushes)

    def wants_action(self, action: str, otherwise: Collection[str]) -> bool:
        """Whether this backend takes part in an action of pull requests; `otherwise` the PULL_ACTIONS setting says.

        Neither lists a change of the base branch: results for another branch say nothing, so every backend gets that.
        """
        return action not in PULL_ACTIONS or action in (otherwise if self.actions is None else self.actions)


def matches_ref(ref: str, pattern: str) -> bool:
    """Return whether a full ref matches a pattern of refs, which means branches unless it starts with `refs/`."""
    full = pattern if pattern.startswith("refs/") else f"refs/heads/{pattern}"
    return fnmatchcase(ref, full)


def _bisect(node: Node, problems: Problems) -> BisectTerms | None:
    """Read the terms of searches: a mapping, or the mode alone."""
    if not isinstance(node, MappingNode):
        mode = BISECT_KEYS["mode"](node, problems)
        return mode and BisectTerms(mode=mode)
    terms: dict[str, Any] = {}
    for name, field in read_pairs(node, problems).items():
        if read := BISECT_KEYS.get(name):
            terms[name] = read(field.value, problems)
        else:
            guess = nearest(name, BISECT_KEYS)
            instead = f"did you mean `{guess}`?" if guess else f"it knows {', '.join(BISECT_KEYS)}"
            problems.add(field.at, f"{quote_word(name)} is no key of `bisect`: {instead}")
    return None if None in terms.values() else BisectTerms(**terms)


ENTRY_KEYS = MappingProxyType(
    {
        "repo": Key(
            read=yaml_document.matching(yaml_document.REPO, "a repository: write `owner/repo`, without URL")
        ),
        "repository_id": Key(read=yaml_document.number(MAX_ID)),
        "device": Key(
            read=yaml_document.matching(
                yaml_document.DEVICE,
                "a device: use up to 50 of A-Z a-z 0-9 . _ -, first a letter or digit",
            ),
            levels=CHECKED,
            why=_UNCHECKED,
        ),
        "aka": Key(read=yaml_document.device_words, levels=REPORTING, why=_SILENT),
        "oncalls": Key(read=yaml_document.logins),
        "events": Key(read=yaml_document.choices(EVENTS)),
        "actions": Key(read=yaml_document.choices(PULL_ACTIONS)),
        "refs": Key(read=yaml_document.refs),
        "deletions": Key(read=yaml_document.truth),
        "nightly": Key(read=yaml_document.choice(NIGHTLY), levels=REPORTING, why=_SILENT),
        "policy": Key(read=yaml_document.choice(POLICIES)),
        "checks": Key(read=yaml_document.choice(CHECKS), levels=CHECKED, why=_UNCHECKED),
        "conclusion": Key(
            read=yaml_document.choice(CONCLUSIONS),
            levels=frozenset({Level.L3}),
            why="a failure at L4 always blocks, and L1 and L2 have no check run",
        ),
        "confirm": Key(
            read=yaml_document.truth,
            levels=frozenset({Level.L4}),
            why="only a green L4 is confirmed with GitHub",
        ),
        "callback_token": Key(read=yaml_document.choice(CALLBACK_TOKENS), levels=REPORTING, why=_SILENT),
        "static_key": Key(
            read=yaml_document.choice(STATIC_KEYS),
            levels=CHECKED,
            why="at L2 every static key is good, and L1 reports nothing",
        ),
        "answers": Key(read=yaml_document.choice(ANSWERS), levels=REPORTING, why=_SILENT),
        "dispatch": Key(read=yaml_document.choice(DISPATCHES)),
        "workflow_file": Key(
            read=yaml_document.matching(
                yaml_document.WORKFLOW_FILE, "a workflow's file name: write it without folder, as `ci.yml`"
            )
        ),
        "job_timeout": Key(read=yaml_document.timeout, levels=REPORTING, why=_SILENT),
        "start_timeout": Key(read=yaml_document.timeout, levels=REPORTING, why=_SILENT),
        "rate_limit": Key(read=yaml_document.number(MAX_RATE), levels=REPORTING, why=_SILENT),
        "bisect": Key(read=_bisect, levels=REPORTING, why=_SILENT),
        **{
            name: Key(read=key.read, levels=frozenset(map(Level, key.levels)), why=key.why)
            for name, key in SELECTION_KEYS.items()
        },
    }
)

# `gate` is the aggregate check's name; a device named like a key could be read both ways.
RESERVED_DEVICES = frozenset({"gate", *ENTRY_KEYS})


def read_entry(
    level: Level, fields: Fields, problems: Problems, default_events: frozenset[str]
) -> dict[str, Any]:
    """Return an entry's values by key; what is wrong with them, alone or together, is added to `problems`."""
    values: dict[str, Any] = {"level": level}
    for name, field in fields.items():
        key = ENTRY_KEYS.get(name)
        if key is None:
            problems.add(field.at, f"{quote_word(name)} is no key of an entry: {_suggestion(name, level)}")
        elif level not in key.levels:
            problems.add(field.at, f"`{name}` means nothing at {level.name}, {key.why}: remove it")
        elif name == "events" and is_empty(field.value):
            continue  # as if it was left out, as to the relay
        elif name != "oncalls" and field.value is not field.at and is_empty(field.value):
            problems.add(field.at, f"`{name}` has no value: write one, or leave the key out")
        else:
            values[name] = key.read(field.value, problems)
    _check_names(values, fields, problems)
    unreadable = "events" in values and values["events"] is None
    events = None if unreadable else meant_events(values.get("events"), default_events)
    _check_company(values, fields, problems, events, strict=not reads_as_relay(default_events))
    return values


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `word`, whatever its case, if any is like it."""
    close = get_close_matches(word.casefold(), {name.casefold() for name in known}, n=1)
    return next((name for name in known if [name.casefold()] == close), None)


def _suggestion(name: str, level: Level) -> str:
    here = [key for key in ENTRY_KEYS if level in ENTRY_KEYS[key].levels]
    guess = nearest(name, ENTRY_KEYS)
    if guess is not None:
        return f"did you mean `{guess}`?"
    return f"{level.name} knows {', '.join(here)}"


def _check_names(values: dict[str, Any], fields: Fields, problems: Problems) -> None:
    start = next(iter(fields.values())).at
    if "repo" not in fields:
        problems.add(start, "the entry names no repository: add `repo: owner/repo`")
        return
    values["line"] = line_of(fields["repo"].at)
    if values["level"] is Level.L3 and "device" not in fields:
        repo = values["repo"] or "owner/repo"
        fix = f"write `npu: {repo}` or add `device: npu`, with your device's name"
        problems.add(start, f"an L3 entry needs a device, the name of its label: {fix}")
    device = values.get("device")
    if device is not None and device.casefold() in RESERVED_DEVICES:
        problems.add(fields["device"].at, f"{quote_word(device)} is reserved: name the device otherwise")


def _check_company(
    values: dict[str, Any],
    fields: Fields,
    problems: Problems,
    events: frozenset[str] | None,
    *,
    strict: bool,
) -> None:
    if events is not None:  # None: not readable, and said so
        _check_events(values["level"], events, fields, problems, strict=strict)
        if values.get("nightly") == "refused" and "nightly" in events:
            fix = "remove one of the two"
            problems.add(fields["nightly"].at, f"`nightly` is refused here and among the `events`: {fix}")
    _check_actions(values, fields, events, problems)
    check_selection(values, fields, events, problems)
    if values["level"] is Level.L4 and values.get("answers") == "some":
        fix = "remove it, or move the entry to L3"
        problems.add(
            fields["answers"].at, f"a gate cannot wait for a backend that need not answer at L4: {fix}"
        )
    by_workflow = values.get("dispatch") == "workflow"
    if by_workflow and "workflow_file" not in fields:
        fix = "add the file's name, as in `workflow_file: ci.yml`"
        problems.add(fields["dispatch"].at, f"`dispatch: workflow` starts one workflow: {fix}")
    if "workflow_file" in fields and not by_workflow:
        fix = "add `dispatch: workflow`, or remove it"
        problems.add(fields["workflow_file"].at, f"`workflow_file` is not used: {fix}")


def _check_events(
    level: Level, events: frozenset[str], fields: Fields, problems: Problems, *, strict: bool
) -> None:
    """Add what is wrong with the events; `strict`: they are not those of the relay, which takes more."""
    if strict and level is Level.L1 and "nightly" in events:
        problems.add(fields["events"].at, f"`nightly` means nothing at L1, {_SILENT}: remove it")
    relays = not strict and events == {"nightly"}
    if level in CHECKED and "pull_request" not in events and not relays:
        fix = "add `pull_request`, or move the entry to L2"
        problems.add(fields["events"].at, f"{level.name} is about pull requests: {fix}")
    for name in ("refs", "deletions"):
        if name in fields and "push" not in events:
            fix = f"add `push` to `events`, or remove `{name}`"
            problems.add(fields[name].at, f"`{name}` is about pushes, and none are asked for: {fix}")


def _check_actions(
    values: dict[str, Any], fields: Fields, events: frozenset[str] | None, problems: Problems
) -> None:
    actions = values.get("actions")
    if actions is None:
        return
    if events is not None and "pull_request" not in events:
        fix = "add `pull_request` to `events`, or remove `actions`"
        problems.add(fields["actions"].at, f"`actions` filters pull requests, and none are asked for: {fix}")
    missing = [name for name in ("opened", "reopened", "synchronize") if name not in actions]
    if values["level"] is Level.L4 and missing:
        fix = f"add {', '.join(f'`{name}`' for name in missing)}, or move the entry to L3"
        problems.add(fields["actions"].at, f"a gate would wait for commits L4 is not told of: {fix}")
