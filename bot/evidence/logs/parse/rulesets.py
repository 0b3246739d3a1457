"""Rules for the lines of logs: how a ruleset file is read, its patterns checked, and a ruleset compiled.

A rule speaks of one line. Patterns are in RE2's syntax and are rewritten so that one search covers many
lines: over a block of lines, anchors have to mean the ends of a line, and nothing may cross a line end (RE2's
`never_nl`).
"""

from __future__ import annotations

import hashlib
import tomllib
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
import re2

from bot.core import escaping, files
from bot.core.errors import OotbotError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Kind = Literal["infra", "build", "test", "lint", "timeout", "oom", "cancel", "setup", "generic"]
KINDS: tuple[str, ...] = get_args(Kind)
RULES_MOST = 500
NAME_MOST = 200
RULESET_BYTES_MOST = 2 * 1024 * 1024
DIGEST_LENGTH = 12
# words of a rule's name -> its kind, where the file gives none: the first that fits
KIND_WORDS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
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
PATTERN_BYTES_MOST = 2048
PROGRAM_MOST = 5000  # instructions; counted repetitions make a short pattern long
LINE_START, LINE_END = "(?m:^)", "(?m:$)"
# A raw line has its timestamp and what processes put there (bot.evidence.logs.parse.lines) in front, and \r behind it.
# These patterns are looser: each line they match is cleaned and looked at again.
PREFIXES = (
    r"\([^)\n]*pid=\d+[^)\n]*\) ",
    r"(?:CRITICAL|ERROR|WARNING|INFO|DEBUG) [\d-]+ [\d:]+ \[[\w./-]+:\d+\] ",
    r"\[(?:rank|default)\d+\]: ?",
    r" *\[(?:junit|junitlauncher|testng|javac|java|exec)\] ?",
    r"#\d+ (?:\d+\.\d+ )?",
    r"[A-Za-z][\w.-]*[-_]\d+ +\| ",
    r"\[[@\w][\w./@-]*(?::[\w.-]+)+\] ",
    r"[@\w][\w./@-]*:[\w:.-]+: ",
    r"[\w@.-]+/[\w@./-]+ [\w:.-]+: ",
    r"[^\t\n]+\t[^\t\n]+\t\x{FEFF}?[0-9][0-9T:.\-]*Z ?",
    r"\[?[\dT][\dT.,:+Z -]*\]? ",
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d [\d:]+ ",
)
RAW_START = r"(?:(?m:^)(?:[0-9][0-9T:.\-]*Z )?(?:" + "|".join(PREFIXES) + ")*)"
RAW_END = r"(?:\r?(?m:$))"
SET_MEMORY = 32 * 1024 * 1024  # of each of the two sets of a ruleset
COMPILED_MOST = 16  # rulesets kept compiled
BOILERPLATE = (  # said whenever a step fails, never why
    r"\[OSDC\] Step script exited",
    r"\[OSDC\] Step cancelled by GitHub Actions",
    r"^##\[error\]Executing the custom container implementation failed",
    r"^##\[error\]TypeError: Cannot read properties of null \(reading 'jobPod'\)",
)
SECTIONS = (  # the log of the compiler cache
    (
        r"={19} sccache compilation log ={19}",
        r"={11} If your build fails, please take a look at the log above for possible reasons ={11}",
    ),
    (r"^##\[group\]Run", r"^##\[endgroup\]"),  # the script of a step, or what an action was given
)
ECHO = 1  # of these, a step's script: without an end it never began, whatever the ruleset says
ECHOED = r"^(?:shell: |with:$)"  # a line of each such section of the runner; tools begin groups named "Run ...", too
# lines that begin with a text are found without RE2: every step has some
LITERALS = {
    SECTIONS[ECHO][0]: (b"##[group]Run",),
    SECTIONS[ECHO][1]: (b"##[endgroup]",),
    ECHOED: (b"shell: ", b"with:\n"),
}
ERROR = r"^##\[error\]"
EXITED = r"^##\[error\]Process completed with exit code "
EXIT_CODE = EXITED + r"\d+\.?$"
OTHER_EXIT_CODE = EXITED + r"(?:\d{1,2}|[02-9]\d\d|1[0-25-9]\d|13[0-3568]|14[0-24-9]|\d{4,})\.?$"
COMMONEST = tuple(b"##[error]Process completed with exit code %d." % code for code in (1, 2))
COMMAND = r"^\+"  # a command as bash prints it with -x
SMALLEST = 16 * 1024  # a block that exhausts the set's memory is halved down to this


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule; the first one of a ruleset that matches anywhere in a log wins."""

    name: str
    pattern: str
    kind: Kind
    repos: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    hint: str | None = None
    # a later line that this pattern matches undoes the match: it was tried again, and succeeded
    unless: str = ""

    def applies(self, repo: str | None, workflow: str | None) -> bool:
        """Whether the rule applies to a repository and workflow; it does where they are unknown."""
        return _matches_any(self.repos, repo) and _matches_any(self.workflows, workflow)


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
        """A hash of what these rules say, wherever they were read from."""
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


class PatternError(Exception):
    """A pattern that cannot be used; the message says why."""


def merge_rulesets(rulesets: list[Ruleset]) -> Ruleset:
    """Merge rulesets, the first with the highest priority."""
    return Ruleset(
        rules=tuple(rule for ruleset in rulesets for rule in ruleset.rules),
        ignore=tuple(dict.fromkeys(pattern for ruleset in rulesets for pattern in ruleset.ignore)),
        sections=tuple(dict.fromkeys(section for ruleset in rulesets for section in ruleset.sections)),
        compat=any(ruleset.compat for ruleset in rulesets),
        last_resort=any(ruleset.last_resort for ruleset in rulesets),
    )


def parse_rules(content: bytes, source: str) -> Ruleset:
    """Parse the rules of a file; raise RulesetError with everything that is wrong with it."""
    if len(content) > RULESET_BYTES_MOST:
        raise RulesetError([f"{source}: {len(content):,} bytes, at most {RULESET_BYTES_MOST:,} are allowed"])
    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RulesetError([f"{source}: not valid TOML: {error}"]) from None
    reader = _Reader(source)
    ruleset = reader.read(document)
    if reader.problems:
        raise RulesetError(reader.problems)
    if make_pattern_set([rule.pattern for rule in ruleset.rules]) is None:
        raise RulesetError(
            [f"{source}: the patterns are too large together: make counted repetitions shorter"]
        )
    return ruleset


def read_rules(path: Path) -> Ruleset:
    """Read the rules of a file on this machine; raise RulesetError if it is wrong."""
    with path.open("rb") as file:
        return parse_rules(file.read(RULESET_BYTES_MOST + 1), str(path))


def shipped_rules() -> Ruleset:
    """Return the rules that come with the program."""
    return read_rules(files.config_file("log_rules.toml"))


def kind_of(name: str) -> Kind:
    """Guess the kind of a rule by its name."""
    folded = name.casefold()
    return next((kind for kind, words in KIND_WORDS if any(word in folded for word in words)), "generic")


def _matches_any(globs: tuple[str, ...], name: str | None) -> bool:
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
            check_pattern(value)
        except PatternError as error:
            self._wrong(where, str(error))
        return value

    def _names(self, where: str, entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            self._wrong(where, f"{key} is a list of names")
            return ()
        return tuple(value)

    def _tables(self, document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        value = document.get(key, [])
        if isinstance(value, list) and all(isinstance(table, dict) for table in value):
            return value
        self._wrong("", f"[[{key}]] is a list of tables")
        return []

    def _unknown(self, where: str, entry: Mapping[str, Any], known: set[str]) -> None:
        for key in entry:
            if key not in known:
                self._wrong(where, f"unknown key {key!r}; there are: {', '.join(sorted(known))}")

    def _wrong(self, where: str, problem: str) -> None:
        self.problems.append(": ".join(filter(None, (self.source, where, problem))))


def pattern_options(*, memory: int | None = None) -> Any:
    """Return RE2's options for patterns of rules."""
    made = re2.Options()
    made.never_nl = True
    made.log_errors = False
    if memory:
        made.max_mem = memory
    return made


def check_pattern(pattern: str, *, memory: int | None = None) -> None:
    """Raise PatternError if no rule may have this pattern."""
    if (size := len(pattern.encode("utf-8", "replace"))) > PATTERN_BYTES_MOST:
        raise PatternError(f"the pattern has {size:,} bytes, at most {PATTERN_BYTES_MOST:,} are allowed")
    try:
        made = re2.compile(pattern, pattern_options(memory=memory))
        over_lines = compile_pattern(pattern, memory=memory)
    except (re2.error, UnicodeEncodeError) as error:
        words = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise PatternError(f"RE2 cannot use the pattern: {words}") from None
    if made.search("") is not None:
        raise PatternError("the pattern matches the empty string, so it would match every line")
    if made.programsize > PROGRAM_MOST or over_lines.programsize > PROGRAM_MOST:
        raise PatternError("the pattern is too large: its counted repetitions multiply")


def compile_pattern(pattern: str, *, memory: int | None = None) -> Any:
    """Compile a pattern for searching in one or many cleaned lines."""
    return re2.compile(_rewritten(pattern, LINE_START, LINE_END), pattern_options(memory=memory))


def make_pattern_set(patterns: Sequence[str], *, memory: int = SET_MEMORY, raw: bool = False) -> Any:
    """Compile a set that tells in one pass which patterns match in cleaned lines; its last index always matches.

    In `raw` lines it finds which may match once they are cleaned.

    None where the patterns are too large together.
    """
    made = re2.Set.SearchSet(pattern_options(memory=memory))
    start, end = (RAW_START, RAW_END) if raw else (LINE_START, LINE_END)
    for pattern in patterns:
        made.Add(_rewritten(pattern, start, end))
    made.Add(LINE_START)
    try:
        made.Compile()
    except re2.error:
        return None
    return made


def _rewritten(pattern: str, start: str, end: str) -> str:
    """Replace the anchors of a pattern."""
    ends = {"^": start, r"\A": start, "$": end, r"\z": end}
    return "".join(ends.get(token, token) for token in _tokens(pattern))


def _tokens(pattern: str) -> Iterator[str]:
    """Cut a pattern into anchors and other pieces: escapes, classes, quoted text and single characters."""
    at = 0
    while at < len(pattern):
        stop = _token_end(pattern, at)
        yield pattern[at:stop]
        at = stop


def _token_end(pattern: str, at: int) -> int:
    if pattern.startswith(r"\Q", at):
        closing = pattern.find(r"\E", at)
        return len(pattern) if closing < 0 else closing + 2
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        return _class_end(pattern, at)
    return at + 1


def _class_end(pattern: str, at: int) -> int:
    """Return where the class that begins at `at` ends; a `]` right at its beginning is a member."""
    at += 2 if pattern.startswith("[^", at) else 1
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        if pattern.startswith("[:", at) and (closing := pattern.find(":]", at + 2)) > 0:
            at = closing + 2
        else:
            at += 2 if pattern[at] == "\\" else 1
    return at + 1


class Matcher:
    """Finds rules, lines to be ignored and sections in blocks of lines. Patterns are named by their index.

    The rules come first, in order; behind them the ignored lines, the start and stop of each section, and commands.
    """

    def __init__(self, ruleset: Ruleset, *, memory: int = SET_MEMORY) -> None:
        self.ruleset = ruleset
        self.rules = ruleset.rules
        sections = [*SECTIONS, *((section.start, section.stop) for section in ruleset.sections)]
        names_signals = any(EXITED in rule.pattern and rule.pattern != EXIT_CODE for rule in self.rules)
        ignored = [OTHER_EXIT_CODE if names_signals else EXIT_CODE, *BOILERPLATE, *ruleset.ignore]
        self._sources = [rule.pattern for rule in self.rules]
        self.ignored = self._add(ignored)
        self.sections = [tuple(self._add([start, stop])) for start, stop in sections]
        self.command, self.echoed, self.error = self._add([COMMAND, ECHOED, ERROR])
        undoing = list(dict.fromkeys(rule.unless for rule in self.rules if rule.unless))
        self.undoing = dict(zip(undoing, self._add(undoing), strict=True))
        self._compiled: dict[int, Any] = {}
        self._set = make_pattern_set(self._sources, memory=memory)
        self._raw_set = make_pattern_set(self._sources, memory=memory, raw=True)
        self._all = (1 << len(self._sources)) - 1
        self.ignored_mask = sum(1 << index for index in self.ignored)

    def may_match(self, text: bytes, *, raw: bool = False) -> int:
        """Return as bits which patterns may match in lines; those that do are always among them.

        Raw lines are those without colours that still have their times and prefixes.
        """
        patterns_of = self._raw_set if raw else self._set
        if patterns_of is None:
            return self._all  # several rulesets, too large together: every pattern is looked for by itself
        indexes = patterns_of.Match(text)
        if indexes is not None:
            bits: int = sum(1 << index for index in indexes)
            return bits & self._all
        middle = text.find(b"\n", len(text) // 2) + 1
        if len(text) <= SMALLEST or not 0 < middle < len(text):
            return self._all  # every pattern is looked for by itself
        return self.may_match(text[:middle], raw=raw) | self.may_match(text[middle:], raw=raw)

    def lines(self, index: int, text: bytes) -> Iterator[tuple[int, Any]]:
        """Yield the start of each cleaned line that a pattern matches, and the first match in it."""
        pattern, at = self.pattern(index), 0
        while match := pattern.search(text, at):
            yield text.rfind(b"\n", 0, match.start()) + 1, match
            end = text.find(b"\n", match.end())
            if end < 0:
                return
            at = end + 1

    def line_starts(self, index: int, text: bytes) -> Iterator[int]:
        """Yield the start of each cleaned line that a pattern matches."""
        texts = LITERALS.get(self._sources[index])
        if texts is None:
            yield from (start for start, _ in self.lines(index, text))
            return
        before = b"\n" + text
        starts: list[int] = []
        for wanted in texts:
            at = before.find(b"\n" + wanted)
            while at >= 0:
                starts.append(at)
                at = before.find(b"\n" + wanted, at + 1)
        yield from sorted(starts)

    def pattern(self, index: int) -> Any:
        """Return a pattern compiled for cleaned lines, once for each index."""
        if index not in self._compiled:
            self._compiled[index] = compile_pattern(self._sources[index])
        return self._compiled[index]

    def without_ignored(self, text: bytes, may_match: int) -> bytes:
        """Empty those of some cleaned lines that are ignored wherever they stand."""
        if may_match >> self.ignored[0] & 1:  # each step that fails says so: most of them without RE2
            for line in COMMONEST:
                text = text.replace(b"\n" + line + b"\n", b"\n\n")
        for index in self.ignored:
            if may_match >> index & 1:
                pieces, kept = [], 0
                for start, match in self.lines(index, text):
                    pieces.append(text[kept:start])
                    kept = text.find(b"\n", match.end())
                    kept = len(text) if kept < 0 else kept
                text = b"".join((*pieces, text[kept:]))
        return text

    def _add(self, sources: list[str]) -> list[int]:
        first = len(self._sources)
        self._sources += sources
        return list(range(first, len(self._sources)))


@lru_cache(COMPILED_MOST)
def compile_rules(ruleset: Ruleset) -> Matcher:
    """Compile a ruleset, which takes some milliseconds."""
    return Matcher(ruleset)
