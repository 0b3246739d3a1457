"""A ruleset compiled: which of its rules may match in a block of raw lines, and on which lines they do."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bot.ci.logs.parse import patterns
from bot.ci.logs.parse.cleaning import BOM, valid, without_escapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.ci.logs.parse.rules import Ruleset

COMPILED_MOST = 16  # rulesets kept compiled
BOILERPLATE = (  # said whenever a step fails, never why
    r"^##\[error\]Process completed with exit code \d+\.?$",
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
        ignored = [*BOILERPLATE, *ruleset.ignore]
        self._sources = [rule.pattern for rule in self.rules]
        self.ignored = self._add(ignored)
        self.sections = [tuple(self._add([start, stop])) for start, stop in sections]
        self.command = self._add([COMMAND])[0]
        self._compiled: dict[int, Any] = {}
        self._set = patterns.make_set(self._sources, memory=memory)
        self._all = (1 << len(self._sources)) - 1
        self.ignored_mask = sum(1 << index for index in self.ignored)

    def may_match(self, raw: bytes, *, first: bool = False) -> int:
        """Return the patterns that may match in a block of raw lines, as bits; all that do match are among them."""
        return self._scan(without_escapes(valid(raw.removeprefix(BOM) if first else raw)))

    def lines(self, index: int, text: bytes) -> Iterator[tuple[int, Any]]:
        """Yield where each line begins that a pattern matches in cleaned lines, and the first match in it."""
        pattern, at = self.pattern(index), 0
        while found := pattern.search(text, at):
            yield text.rfind(b"\n", 0, found.start()) + 1, found
            end = text.find(b"\n", found.end())
            if end < 0:
                return
            at = end + 1

    def pattern(self, index: int) -> Any:
        """Return a pattern compiled for cleaned lines."""
        if index not in self._compiled:
            self._compiled[index] = patterns.for_block(self._sources[index])
        return self._compiled[index]

    def without_ignored(self, text: bytes, may_match: int) -> bytes:
        """Return cleaned lines with those emptied that are ignored wherever they stand."""
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

    def _scan(self, text: bytes) -> int:
        if self._set is None:
            return self._all  # several rulesets, too large together: every pattern is looked for by itself
        found = self._set.Match(text)
        if found is not None:
            bits: int = sum(1 << index for index in found)
            return bits & self._all
        middle = text.find(b"\n", len(text) // 2) + 1
        if len(text) <= SMALLEST or not 0 < middle < len(text):
            return self._all  # every pattern is looked for by itself
        return self._scan(text[:middle]) | self._scan(text[middle:])


@lru_cache(COMPILED_MOST)
def compile_rules(ruleset: Ruleset) -> Matcher:
    """Return a ruleset compiled, which takes some milliseconds."""
    return Matcher(ruleset)
