"""A ruleset compiled: which of its rules may match in a block of lines, and on which lines they do."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bot.ci.logs.parse import patterns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.ci.logs.parse.rules import Ruleset

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


class Matcher:
    """Finds rules, lines to be ignored and sections in blocks of lines. Patterns are named by their index.

    The rules come first, in order; behind them the ignored lines, the start and stop of each section, and commands.
    """

    def __init__(self, ruleset: Ruleset, *, memory: int = patterns.SET_MEMORY) -> None:
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
        self._set = patterns.make_set(self._sources, memory=memory)
        self._raw_set = patterns.make_set(self._sources, memory=memory, raw=True)
        self._all = (1 << len(self._sources)) - 1
        self.ignored_mask = sum(1 << index for index in self.ignored)

    def may_match(self, text: bytes, *, raw: bool = False) -> int:
        """Return the patterns that may match in lines, as bits; all that do match are among them.

        Raw lines are those without colours that still have their times and prefixes.
        """
        patterns_of = self._raw_set if raw else self._set
        if patterns_of is None:
            return self._all  # several rulesets, too large together: every pattern is looked for by itself
        found = patterns_of.Match(text)
        if found is not None:
            bits: int = sum(1 << index for index in found)
            return bits & self._all
        middle = text.find(b"\n", len(text) // 2) + 1
        if len(text) <= SMALLEST or not 0 < middle < len(text):
            return self._all  # every pattern is looked for by itself
        return self.may_match(text[:middle], raw=raw) | self.may_match(text[middle:], raw=raw)

    def lines(self, index: int, text: bytes) -> Iterator[tuple[int, Any]]:
        """Yield where each line begins that a pattern matches in cleaned lines, and the first match in it."""
        pattern, at = self.pattern(index), 0
        while found := pattern.search(text, at):
            yield text.rfind(b"\n", 0, found.start()) + 1, found
            end = text.find(b"\n", found.end())
            if end < 0:
                return
            at = end + 1

    def line_starts(self, index: int, text: bytes) -> Iterator[int]:
        """Yield where each line begins that a pattern matches in cleaned lines."""
        texts = LITERALS.get(self._sources[index])
        if texts is None:
            yield from (start for start, _ in self.lines(index, text))
            return
        before = b"\n" + text
        found: list[int] = []
        for wanted in texts:
            at = before.find(b"\n" + wanted)
            while at >= 0:
                found.append(at)
                at = before.find(b"\n" + wanted, at + 1)
        yield from sorted(found)

    def pattern(self, index: int) -> Any:
        """Return a pattern compiled for cleaned lines."""
        if index not in self._compiled:
            self._compiled[index] = patterns.for_block(self._sources[index])
        return self._compiled[index]

    def without_ignored(self, text: bytes, may_match: int) -> bytes:
        """Return cleaned lines with those emptied that are ignored wherever they stand."""
        if may_match >> self.ignored[0] & 1:  # each step that fails says so: most of them without RE2
            for line in COMMONEST:
                text = text.replace(b"\n" + line + b"\n", b"\n\n")
        for index in self.ignored:
            if may_match >> index & 1:
                pieces, kept = [], 0
                for start, found in self.lines(index, text):
                    pieces.append(text[kept:start])
                    kept = text.find(b"\n", found.end())
                    kept = len(text) if kept < 0 else kept
                text = b"".join((*pieces, text[kept:]))
        return text

    def _add(self, sources: list[str]) -> list[int]:
        first = len(self._sources)
        self._sources += sources
        return list(range(first, len(self._sources)))


@lru_cache(COMPILED_MOST)
def compile_rules(ruleset: Ruleset) -> Matcher:
    """Return a ruleset compiled, which takes some milliseconds."""
    return Matcher(ruleset)
