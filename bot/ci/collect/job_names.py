"""Names of jobs, read: build, test configuration, shard, runner, flags.

A matrix job is called `{build} / {kind} ({arguments})`, as in `linux-jammy / test (default, 1, 5, linux.4xlarge)`.
What differs between two runs of the same work (the shard, the runner) is taken out of the name, so that its results
can be compared. Nothing else is: jobs that differ in any other argument stay different.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHARDS_MOST = 512
DEFAULT = "default"
FLAGS = frozenset({"unstable", "mem_leak_check", "rerun_disabled_tests"})
_BUILD = re.compile(r"^(.*) / ", re.DOTALL)
_TEST = re.compile(r" / test(?:-osdc)? \(([\w-]*),")
_TEST_LIKE = re.compile(r"^(.*) / .*test \(([^,]*), .*\)", re.DOTALL)
_ARGUMENTS = re.compile(r"^(.*?) ?\(([^()]*)\)$", re.DOTALL)
_FRACTION = re.compile(r"^(\d{1,3}) ?(?:/|of) ?(\d{1,3})$", re.ASCII)
_NUMBER = re.compile(r"^\d{1,3}$", re.ASCII)
# a label such as linux.4xlarge or npu.8, but no version such as py3.11 or cuda12.1: that tells two jobs apart
_RUNNER = re.compile(
    r"^(?:[A-Za-z]+(?:-[A-Za-z]+)*(?:-\d+)?\.[\w.-]+|(?:ubuntu|windows|macos|self-hosted)-[\w.-]+)$"
)


@dataclass(frozen=True, kw_only=True)
class JobName:
    """The parts of a job's name."""

    workflow: str
    base: str  # the build it belongs to, else the whole name
    config: str
    job: str  # without shard and runner
    numbered: str  # without the runner only: the name where the numbers turn out to be no shard
    flags: tuple[str, ...] = ()
    shard: int = 0  # 0: no numbers that could be a shard
    shards: int = 0
    runner: str | None = None

    @property
    def family(self) -> str:
        """The full name without shard and runner: equal for runs whose results can be compared."""
        return f"{self.workflow} / {self.job}" if self.workflow else self.job

    @property
    def full(self) -> str:
        """The full name with its numbers."""
        return f"{self.workflow} / {self.numbered}" if self.workflow else self.numbered


@lru_cache(maxsize=20_000)
def parse(workflow: str, name: str) -> JobName:
    """Read a job's name as GitHub has it, without the workflow's."""
    matched = _ARGUMENTS.match(name)
    head, arguments = (matched[1], _split(matched[2])) if matched else (name, [])
    runner = _runner(arguments)
    rest = [word for word in arguments if word != runner]
    at, width, shard, shards = _shard(rest)
    kept = rest[:at] + rest[at + width :]
    base, config = _base(name)
    return JobName(
        workflow=workflow,
        base=base,
        config=config,
        job=_joined(head, kept),
        numbered=_joined(head, rest),
        flags=tuple(word for word in kept if word in FLAGS),
        shard=shard,
        shards=shards,
        runner=runner,
    )


def sharded(names: Iterable[JobName]) -> Mapping[str, frozenset[int]]:
    """Return, by family, the numbers of shards that are ones.

    `names` are all jobs of one commit, over all runs and attempts. A lone `test (3, 5)` is a value of a matrix; with
    `test (1, 5)` beside it, both are shards of five.
    """
    seen: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for name in names:
        if name.shards:
            seen[name.family, name.shards].add(name.shard)
    found: defaultdict[str, set[int]] = defaultdict(set)
    for (family, shards), numbers in seen.items():
        if len(numbers) > 1:
            found[family].add(shards)
    return {family: frozenset(numbers) for family, numbers in found.items()}


def _split(arguments: str) -> list[str]:
    return [word.strip() for word in arguments.split(",")]


def _joined(head: str, arguments: list[str]) -> str:
    return f"{head} ({', '.join(arguments)})" if arguments else head


def _runner(arguments: list[str]) -> str | None:
    """Return the runner's label: the last of several arguments but the flags, where it looks like one."""
    label = next((word for word in reversed(arguments) if word not in FLAGS), "")
    return label if len(arguments) > 1 and _RUNNER.match(label) else None


def _shard(arguments: list[str]) -> tuple[int, int, int, int]:
    """Return where the shard's numbers are, how many arguments they take, and the two numbers."""
    for at, word in enumerate(arguments):
        if (fraction := _FRACTION.match(word)) and _possible(fraction[1], fraction[2]):
            return at, 1, int(fraction[1]), int(fraction[2])
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        if _NUMBER.match(word) and _NUMBER.match(following) and _possible(word, following):
            return at, 2, int(word), int(following)
    return len(arguments), 0, 0, 0


def _possible(shard: str, shards: str) -> bool:
    return 1 <= int(shard) <= int(shards) <= SHARDS_MOST


def _base(name: str) -> tuple[str, str]:
    """Return the build's name and the test configuration."""
    build = _BUILD.match(name)
    config = _TEST.search(name)
    if build and config and config[1]:
        return build[1], config[1]
    if like := _TEST_LIKE.match(name):
        return like[1], like[2] or DEFAULT
    return (build[1] if build else name), DEFAULT
