"""Rules for the lines of logs: what one is, and how a ruleset file is read."""

from __future__ import annotations

import hashlib
import tomllib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from bot.ci.logs.parse import patterns
from bot.core import escaping, package_files
from bot.core.errors import OotbotError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Kind = Literal["infra", "build", "test", "lint", "timeout", "oom", "cancel", "setup", "generic"]
KINDS: tuple[str, ...] = get_args(Kind)
RULES_MOST = 500
NAME_MOST = 200
BYTES_MOST = 2 * 1024 * 1024
DIGEST_LENGTH = 12
# words of a rule's name -> its kind, where the file gives none: the first that fits
NAMED: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("timeout", ("timeout", "timed out", "time limit")),
    ("oom", ("out of memory", "oom")),
    ("cancel", ("cancel",)),
    ("lint", ("lint", "flake8", "ruff", "mypy", "clang-format", "clang-tidy", "trailing spaces", "pre-commit")),
    (
        "infra",
        ("runner", "docker", "artifact", "out of space", "rate limit", "credential", "curl", "shutdown",
         "apt-get", "response status"),
    ),
    ("setup", ("checkout", "conda", "dependency", "installation", "npm", "modulenotfound")),
    ("test", ("test", "asan", "unexpected success", "sig code")),
    ("build", ("compile", "build", "linker", "msvc", "ninja", "bazel", "make", "cmake", "sccache")),
)  # fmt: skip


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule; of a ruleset's rules the first that matches anywhere in a log wins."""

    name: str
    pattern: str
    kind: Kind
    repos: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    hint: str | None = None
    unless: str = (
        ""  # a later line that this pattern matches undoes the match: it was tried again, and succeeded
    )

    def applies(self, repo: str | None, workflow: str | None) -> bool:
        """Whether the rule is for that repository and workflow; where these are not known, it is."""
        return _fits(self.repos, repo) and _fits(self.workflows, workflow)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that no rule looks at: from one that `start` matches to the next that `stop` matches."""

    start: str
    stop: str


class Ruleset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of one or several files, highest priority first."""

    rules: tuple[Rule, ...] = ()
    ignore: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    compat: bool = False  # a section without an end reaches to the end of the log
    last_resort: bool = False  # where no rule matches, the last line before the first error is shown

    @property
    def digest(self) -> str:
        """The name of what these rules say, wherever they were read from."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:DIGEST_LENGTH]

    def applied_to(self, repo: str | None, workflow: str | None) -> Ruleset:
        """Return the rules for one repository and workflow."""
        kept = tuple(rule for rule in self.rules if rule.applies(repo, workflow))
        return self if len(kept) == len(self.rules) else msgspec.structs.replace(self, rules=kept)


class RulesetError(OotbotError):
    """A ruleset file that cannot be used; `problems` says everything that is wrong, with file and rule."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def merge_rulesets(rulesets: list[Ruleset]) -> Ruleset:
    """Return several rulesets as one, the first with the highest priority."""
    return Ruleset(
        rules=tuple(rule for one in rulesets for rule in one.rules),
        ignore=tuple(dict.fromkeys(pattern for one in rulesets for pattern in one.ignore)),
        sections=tuple(dict.fromkeys(section for one in rulesets for section in one.sections)),
        compat=any(one.compat for one in rulesets),
        last_resort=any(one.last_resort for one in rulesets),
    )


def parse_rules(content: bytes, source: str) -> Ruleset:
    """Return the rules of a file; raises RulesetError with everything that is wrong with it."""
    if len(content) > BYTES_MOST:
        raise RulesetError([f"{source}: {len(content):,} bytes, at most {BYTES_MOST:,} are allowed"])
    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RulesetError([f"{source}: not valid TOML: {error}"]) from None
    reader = _Reader(source)
    ruleset = reader.read(document)
    if reader.problems:
        raise RulesetError(reader.problems)
    if patterns.make_set([rule.pattern for rule in ruleset.rules]) is None:
        raise RulesetError(
            [f"{source}: the patterns are too large together: make counted repetitions shorter"]
        )
    return ruleset


def read_rules(path: Path) -> Ruleset:
    """Return the rules of a file on this machine; raises RulesetError."""
    with path.open("rb") as file:
        return parse_rules(file.read(BYTES_MOST + 1), str(path))


def shipped_rules() -> Ruleset:
    """Return the rules that come with the program."""
    return read_rules(package_files.config("log_rules.toml"))


def kind_of(name: str) -> Kind:
    """Return the kind that a rule's name tells."""
    folded = name.casefold()
    return next((kind for kind, words in NAMED if any(word in folded for word in words)), "generic")


def _fits(globs: tuple[str, ...], name: str | None) -> bool:
    return not globs or name is None or any(fnmatchcase(name.casefold(), glob.casefold()) for glob in globs)


class _Reader:
    """Reads one document and collects what is wrong with it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[str] = []

    def read(self, document: Mapping[str, Any]) -> Ruleset:
        self._unknown("", document, {"rule", "ignore", "section", "compat", "last_resort"})
        compat, last_resort = (self._flag(document, name) for name in ("compat", "last_resort"))
        entries = self._tables(document, "rule")
        if len(entries) > RULES_MOST:
            self._wrong("", f"{len(entries)} rules, at most {RULES_MOST} are allowed")
            entries = []
        rules = [self._rule(number, entry) for number, entry in enumerate(entries, 1)]
        ignored = [self._ignored(n, entry) for n, entry in enumerate(self._tables(document, "ignore"), 1)]
        sections = [self._section(n, entry) for n, entry in enumerate(self._tables(document, "section"), 1)]
        return Ruleset(
            rules=tuple(rule for rule in rules if rule),
            ignore=tuple(ignored),
            sections=tuple(sections),
            compat=compat,
            last_resort=last_resort,
        )

    def _flag(self, document: Mapping[str, Any], name: str) -> bool:
        value = document.get(name, False)
        if not isinstance(value, bool):
            self._wrong("", f"{name} is true or false")
        return value is True

    def _rule(self, number: int, entry: Mapping[str, Any]) -> Rule | None:
        name = entry.get("name")
        where = f"rule {number}"
        if not isinstance(name, str) or not name.strip() or len(name) > NAME_MOST:
            self._wrong(where, f"name is missing, or no text of at most {NAME_MOST} characters")
            name = ""
        where += f" '{name}'" if name else ""
        self._unknown(where, entry, {"name", "pattern", "kind", "repos", "workflows", "hint", "unless"})
        pattern = self._pattern(where, entry, "pattern")
        kind = entry.get("kind", kind_of(name))
        if kind not in KINDS:
            self._wrong(where, f"kind is one of {', '.join(KINDS)}")
        hint = entry.get("hint")
        if hint is not None and not (isinstance(hint, str) and escaping.url(hint)):
            self._wrong(where, "hint is an http(s) address")
        unless = self._pattern(where, entry, "unless") if "unless" in entry else ""
        repos, workflows = self._names(where, entry, "repos"), self._names(where, entry, "workflows")
        if self.problems:
            return None
        return Rule(
            name=name, pattern=pattern, kind=kind, repos=repos, workflows=workflows, hint=hint, unless=unless
        )

    def _ignored(self, number: int, entry: Mapping[str, Any]) -> str:
        self._unknown(f"ignore {number}", entry, {"pattern"})
        return self._pattern(f"ignore {number}", entry, "pattern")

    def _section(self, number: int, entry: Mapping[str, Any]) -> Section:
        where = f"section {number}"
        self._unknown(where, entry, {"start", "stop"})
        return Section(start=self._pattern(where, entry, "start"), stop=self._pattern(where, entry, "stop"))

    def _pattern(self, where: str, entry: Mapping[str, Any], key: str) -> str:
        value = entry.get(key)
        if not isinstance(value, str):
            self._wrong(where, f"{key} is missing, or no text")
            return ""
        try:
            patterns.check_pattern(value)
        except patterns.PatternError as error:
            self._wrong(where, str(error))
        return value

    def _names(self, where: str, entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            self._wrong(where, f"{key} is a list of names")
            return ()
        return tuple(value)

    def _tables(self, document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        value = document.get(key, [])
        if isinstance(value, list) and all(isinstance(one, dict) for one in value):
            return value
        self._wrong("", f"[[{key}]] is a list of tables")
        return []

    def _unknown(self, where: str, entry: Mapping[str, Any], known: set[str]) -> None:
        for key in entry:
            if key not in known:
                self._wrong(where, f"unknown key {key!r}; there are: {', '.join(sorted(known))}")

    def _wrong(self, where: str, problem: str) -> None:
        self.problems.append(": ".join(filter(None, (self.source, where, problem))))
