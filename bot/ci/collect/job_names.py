"""Names of jobs, taken apart: what is built, which configuration, which shard of how many, on which runner.

`{build} / {kind} ({argument}, ...)` is how a matrix names its jobs. Two whole numbers in a row may be a shard and their
count, or two values of a matrix: only the other jobs of the same commit can tell, see `resolve_shards`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FAILED = frozenset({"failure", "timed_out", "cancelled"})  # conclusions whose log may say why
MOST_SHARDS = 512
DEFAULT = "default"  # the configuration of a job that names none
FLAGS = frozenset({"unstable", "mem_leak_check", "rerun_disabled_tests"})  # may follow the runner
LONGEST = 1000  # characters of a name that are looked at
_ARGUMENTS = re.compile(r"^(?P<head>[^()].*?) ?\((?P<arguments>[^()]*)\)$")  # the last parenthesis only
_TEST = re.compile(r"(?:^|[ /_-])test(?:-osdc)?$")
_PAIR = re.compile(r"(\d{1,3}) ?(?:/|of) ?(\d{1,3})")
_NUMBER = re.compile(r"\d{1,3}")
_VERSION = re.compile(r"v?\d+(?:\.\d+)*(?:\.x)?[a-z]?\d*")
_PLAIN_LABELS = ("ubuntu-", "windows-", "macos-", "self-hosted")


@dataclass(frozen=True, kw_only=True)
class JobName:
    """A job's name, taken apart."""

    workflow: str
    name: str  # as GitHub has it
    base_name: str  # what is built
    config: str
    head: str  # the name without its arguments
    arguments: tuple[str, ...]  # without shard and runner
    all_arguments: tuple[str, ...]
    numbers: tuple[int, int] | None = None  # of the shard, and how many there are
    runner: str | None = None

    @property
    def shard(self) -> int | None:
        """The shard's number."""
        return self.numbers and self.numbers[0]

    @property
    def shards(self) -> int | None:
        """How many shards there are."""
        return self.numbers and self.numbers[1]

    @property
    def full(self) -> str:
        """The name with its workflow's."""
        return f"{self.workflow} / {self.name}" if self.workflow else self.name

    @property
    def job(self) -> str:
        """The name without shard, runner and workflow."""
        return _joined(self.head, self.arguments)

    @property
    def numbered(self) -> str:
        """The same with its numbers: the name where they turn out to be no shard."""
        return _joined(self.head, _kept(self))

    @property
    def shard_free(self) -> str:
        """The full name without shard and runner: the same for all shards, on whatever they run."""
        return f"{self.workflow} / {self.job}" if self.workflow else self.job

    @property
    def flags(self) -> tuple[str, ...]:
        """The arguments beside the configuration, such as `unstable`."""
        return self.arguments[1:] if self.arguments[:1] == (self.config,) else self.arguments


def parse_name(workflow: str | None, name: str) -> JobName:
    """Take a name apart; a shard is only presumed, see `resolve_shards`."""
    name = name[:LONGEST]
    found = _ARGUMENTS.match(name)
    head = found["head"] if found else name
    given = tuple(part.strip() for part in found["arguments"].split(",")) if found else ()
    is_test = bool(_TEST.search(head))
    base, slash, _ = head.rpartition(" / ")
    rest, numbers = _without_shard(given)
    rest, runner = _without_runner(rest, sharded=numbers is not None)
    return JobName(
        workflow=workflow or "",
        name=name,
        base_name=base if slash else name,
        config=given[0] if is_test and len(given) > 1 and given[0] else DEFAULT,
        head=head,
        arguments=tuple(part for part in rest if part),
        all_arguments=given,
        numbers=numbers,
        runner=runner,
    )


def resolve_shards(names: Iterable[JobName]) -> list[JobName]:
    """Return the jobs of one commit, over all its runs, with shards only where there are siblings of the same count."""
    parsed = list(names)
    seen: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for one in parsed:
        if one.shard is not None:
            seen[_siblings(one)].add(one.shard)
    return [one if one.shard is None or len(seen[_siblings(one)]) > 1 else _whole(one) for one in parsed]


def _siblings(one: JobName) -> tuple[object, ...]:
    return one.workflow, one.head, one.config, one.shards


def _whole(one: JobName) -> JobName:
    """Return a job whose numbers are part of its name."""
    return replace(one, arguments=_kept(one), numbers=None)


def _kept(one: JobName) -> tuple[str, ...]:
    return tuple(part for part in one.all_arguments if part and part != one.runner)


def _joined(head: str, arguments: tuple[str, ...]) -> str:
    return f"{head} ({', '.join(arguments)})" if arguments else head


def _without_runner(given: tuple[str, ...], *, sharded: bool) -> tuple[tuple[str, ...], str | None]:
    """Return the arguments without the runner, the last one but the flags where it looks like one; a version does not.

    A plain label such as `ubuntu-24.04` is a runner beside a shard only: else it may be what a matrix compares.
    """
    if not given or (len(given) < 2 and not sharded):
        return given, None
    last = next((part for part in reversed(given) if part not in FLAGS), "")
    plain = last.lower().startswith(_PLAIN_LABELS)
    looks = sharded if plain else "." in last and not _VERSION.fullmatch(last)
    return (tuple(part for part in given if part != last), last) if looks else (given, None)


def _without_shard(given: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[int, int] | None]:
    """Return the arguments without a shard and its count, `2, 5`, `2/5` or `2 of 5`; the first such pair."""
    for at, part in enumerate(given):
        pair = _PAIR.fullmatch(part)
        following = given[at + 1] if at + 1 < len(given) else ""
        if pair:
            shard, shards, length = int(pair[1]), int(pair[2]), 1
        elif _NUMBER.fullmatch(part) and _NUMBER.fullmatch(following):
            shard, shards, length = int(part), int(following), 2
        else:
            continue
        if 1 <= shard <= shards <= MOST_SHARDS:
            return given[:at] + given[at + length :], (shard, shards)
    return given, None
