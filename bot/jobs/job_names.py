"""Names of jobs and labels of their runners: taken apart, matched by patterns, shortened for columns."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

from bot.core import escaping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.jobs.settings import NamedPatterns, TrunkSettings
    from bot.jobs.tables import ColumnRow

FAILED = frozenset({"failure", "timed_out", "cancelled"})  # conclusions whose log may say why
MOST_SHARDS = 512
DEFAULT_CONFIGURATION = "default"  # the configuration of a job that names none
NAME_FLAGS = frozenset({"unstable", "mem_leak_check", "rerun_disabled_tests"})  # may follow the runner
LONGEST_NAME = 1000  # characters of a name that are looked at
_ARGUMENTS = re.compile(r"^(?P<head>[^()].*?) ?\((?P<arguments>[^()]*)\)$")  # the last parenthesis only
_TEST = re.compile(r"(?:^|[ /_-])test(?:-osdc)?$")
_PAIR = re.compile(r"(\d{1,3}) ?(?:/|of) ?(\d{1,3})")
_NUMBER = re.compile(r"\d{1,3}")
_VERSION = re.compile(r"v?\d+(?:\.\d+)*(?:\.x)?[a-z]?\d*")
_PLAIN_LABELS = ("ubuntu-", "windows-", "macos-", "self-hosted")
PATTERNS_MOST = 200
CHARACTERS_MOST = 500
NAMES_MOST, NAME_MOST = 10_000, 200  # names whose place on the grid is remembered, and characters of each
TYPED_BYTES, TYPED_STEPS = 256 * 1024, 2_000  # of a pattern that a reader typed: what RE2 may use for it
UNLABELLED = "unknown"
LABELS_MOST, LABEL_MOST = 10, 120  # labels of a job that are kept, characters of each
LABEL_SEPARATOR = ","  # no label has a comma: runners are given their labels separated by commas


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
        """The same name with its numbers, for the case that they are no shard."""
        return _joined(self.head, _kept(self))

    @property
    def shard_free(self) -> str:
        """The full name without shard and runner: the same for all shards, whatever they run on."""
        return f"{self.workflow} / {self.job}" if self.workflow else self.job

    @property
    def flags(self) -> tuple[str, ...]:
        """The arguments besides the configuration, such as `unstable`."""
        return self.arguments[1:] if self.arguments[:1] == (self.config,) else self.arguments


def parse_name(workflow: str | None, name: str) -> JobName:
    """Take a name apart; a shard is only presumed until `resolve_shards`."""
    name = name[:LONGEST_NAME]
    match = _ARGUMENTS.match(name)
    head = match["head"] if match else name
    given = tuple(part.strip() for part in match["arguments"].split(",")) if match else ()
    is_test = bool(_TEST.search(head))
    base, slash, _ = head.rpartition(" / ")
    rest, numbers = _without_shard(given)
    rest, runner = _without_runner(rest, sharded=numbers is not None)
    return JobName(
        workflow=workflow or "",
        name=name,
        base_name=base if slash else name,
        config=given[0] if is_test and len(given) > 1 and given[0] else DEFAULT_CONFIGURATION,
        head=head,
        arguments=tuple(part for part in rest if part),
        all_arguments=given,
        numbers=numbers,
        runner=runner,
    )


def resolve_shards(names: Iterable[JobName]) -> list[JobName]:
    """Return the jobs of one commit, over all its runs; shards stay only where siblings have the same count."""
    parsed = list(names)
    seen: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for name in parsed:
        if name.shard is not None:
            seen[_siblings(name)].add(name.shard)
    return [name if name.shard is None or len(seen[_siblings(name)]) > 1 else _whole(name) for name in parsed]


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise ValueError, naming the pattern, if one of them cannot be used."""
    check_count(len(patterns))
    for pattern in patterns:
        compile_pattern(pattern)


def check_count(patterns: int) -> None:
    """Raise ValueError if there are too many patterns."""
    if patterns > PATTERNS_MOST:
        raise ValueError(f"{patterns} patterns, at most {PATTERNS_MOST} are allowed")


def check_replacement(pattern: str, replacement: str) -> None:
    """Raise ValueError if the replacement asks for a group that the pattern does not have."""
    group = max((int(digit) for digit in re.findall(r"\\(\d)", replacement)), default=0)
    if group > compile_pattern(pattern).groups:
        raise ValueError(f"{replacement[:40]!r} names group {group}, which {pattern[:40]!r} does not have")


@lru_cache(maxsize=1_000)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern of the settings; raises ValueError."""
    return _compile(pattern, re2.Options())


def compile_typed(pattern: str) -> Any:
    """Compile a pattern that a reader typed; raises ValueError, also if it needs much memory.

    Nothing keeps it: strangers may type as many as they like.
    """
    options = re2.Options()
    options.max_mem = TYPED_BYTES
    try:
        compiled = _compile(pattern, options)
    finally:
        re2.purge()  # the library keeps what it compiles, too
    if compiled.programsize > TYPED_STEPS:
        raise ValueError(f"{pattern[:80]!r} is no pattern: too large")
    return compiled


def first_match(named: tuple[tuple[str, str], ...], text: str) -> str | None:
    """Return the name of the first pattern that matches anywhere in a text."""
    return (_first_match if len(text) <= NAME_MOST else _first_match.__wrapped__)(named, text)


def replace_names(aliases: Iterable[tuple[str, str]], text: str) -> str:
    """Replace what each pattern matches in a text, one pattern after the other."""
    for pattern, replacement in aliases:
        text = compile_pattern(pattern).sub(replacement, text)
    return text


def column_name(column: ColumnRow, settings: TrunkSettings) -> str | None:
    """Return the name of a stored column on the grid, None where it is hidden."""
    workflow, job = column["workflow"], column["job"]
    return shown_name(workflow, f"{workflow} / {job}" if workflow else job, settings)


def shown_name(workflow: str, name: str, settings: TrunkSettings) -> str | None:
    """Return the name of a column on the grid, None where it is hidden; `name` begins with the workflow's."""
    known = len(workflow) + len(name) <= NAME_MOST
    return (_shown if known else _shown.__wrapped__)(workflow, name, settings.ci_hide, settings.ci_aliases)


def join_columns(columns: Mapping[int, ColumnRow], settings: TrunkSettings) -> dict[int, int]:
    """Map each column to the one that stands for all of the same name, as when an alias joins them."""
    first: dict[str, int] = {}
    joined = {}
    for key in sorted(columns):
        name = column_name(columns[key], settings)
        if name is not None and (known := first.setdefault(name, key)) != key:
            joined[key] = known
    return joined


def name_test(text: str) -> Any:
    """Return a test of names by what was typed: `/pattern/`, else a part of the name; raises ValueError."""
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        return compile_typed(text[1:-1]).search
    folded = text.casefold()
    return lambda name: folded in name.casefold()


def stored_labels(labels: Sequence[str]) -> str | None:
    """Return a job's labels as they are stored, None where it has none."""
    kept = (
        escaping.one_line(label.replace(LABEL_SEPARATOR, " "))[:LABEL_MOST] for label in labels[:LABELS_MOST]
    )
    return LABEL_SEPARATOR.join(kept) or None


def choose_label(labels: Sequence[str], patterns: NamedPatterns = ()) -> str | None:
    """Return the label that a job is counted under, None where it has none.

    The first pattern that one of them matches names it; without one it is the second, since the first of several
    is less specific, as in `self-hosted, npu-8`.
    """
    for pattern, name in patterns:
        for label in labels:
            if match := compile_pattern(pattern).search(label):
                return escaping.one_line(match.expand(name))[:LABEL_MOST] or label
    return labels[1] if len(labels) > 1 else next(iter(labels), None)


@lru_cache(maxsize=2_000)
def counted_label(stored: str | None, patterns: NamedPatterns) -> str:
    """Return the label that a job with these stored labels is counted under."""
    return choose_label((stored or "").split(LABEL_SEPARATOR), patterns) or UNLABELLED


def _siblings(name: JobName) -> tuple[object, ...]:
    return name.workflow, name.head, name.config, name.shards


def _whole(name: JobName) -> JobName:
    """Return a job with its numbers as part of its name."""
    return replace(name, arguments=_kept(name), numbers=None)


def _kept(name: JobName) -> tuple[str, ...]:
    return tuple(part for part in name.all_arguments if part and part != name.runner)


def _joined(head: str, arguments: tuple[str, ...]) -> str:
    return f"{head} ({', '.join(arguments)})" if arguments else head


def _without_runner(given: tuple[str, ...], *, sharded: bool) -> tuple[tuple[str, ...], str | None]:
    """Return the arguments without the runner: the last one before the flags, if it looks like one; a version does not.

    A plain label such as `ubuntu-24.04` is a runner only beside a shard: else it may be what a matrix compares.
    """
    if not given or (len(given) < 2 and not sharded):
        return given, None
    last = next((part for part in reversed(given) if part not in NAME_FLAGS), "")
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


def _compile(pattern: str, options: Any) -> Any:
    if len(pattern) > CHARACTERS_MOST:
        raise ValueError(f"the pattern {pattern[:40]!r}... is too long: at most {CHARACTERS_MOST} characters")
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        words = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise ValueError(f"{pattern[:80]!r} is no pattern: {words}") from None


@lru_cache(maxsize=NAMES_MOST)
def _first_match(named: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((name for name, pattern in named if compile_pattern(pattern).search(text)), None)


@lru_cache(maxsize=NAMES_MOST)
def _shown(
    workflow: str, name: str, hide: tuple[str, ...], aliases: tuple[tuple[str, str], ...]
) -> str | None:
    parts = (workflow.casefold(), name.removeprefix(f"{workflow} / ").casefold())
    if any(fnmatchcase(part, glob.casefold()) for glob in hide for part in parts):
        return None
    return replace_names(aliases, name)
