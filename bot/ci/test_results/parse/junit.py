"""JUnit XML, as its many producers write it: every case with its attempts. docs/tests.md says which are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from bot.ci.collect.parse.contract import Broken, Refused
from bot.ci.test_results.parse.cases import (
    FAILING,
    JUST_PASSED,
    MOST_CASES,
    Attempt,
    Cases,
    Group,
    Outcome,
)
from bot.ci.test_results.parse.names import Place, place
from bot.ci.test_results.parse.texts import (
    MESSAGE_MOST,
    OUTPUT_MOST,
    STACK_MOST,
    WHOLE_LOG_MOST,
    KeptText,
    beginning,
    is_too_long,
    line_number,
    milliseconds,
)
from bot.ci.test_results.parse.time_limits import STATUSES, is_timeout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PIECE = 1024 * 1024  # bytes given to expat at once: in small pieces, a long attribute takes quadratic time
TOKEN_MOST = 8 * 1024 * 1024  # bytes of one tag or comment
DEPTH_MOST = 64
ATTRIBUTES_MOST = 64
ATTRIBUTE_MOST = 64 * 1024  # characters
TEXTS_MOST = 10_000  # attempts with message and stack in one report; more are counted

EARLIER = frozenset({"rerun", "flakyFailure", "flakyError", "rerunFailure", "rerunError"})
FINAL = {"failure": Outcome.FAILED, "error": Outcome.ERROR, "skipped": Outcome.SKIPPED}
OUTPUTS = frozenset({"system-out", "system-err"})
NOT_RUN = frozenset({"notrun", "disabled", "suppressed", "skipped"})
SAID = {"fail": Outcome.FAILED, "failed": Outcome.FAILED, "failure": Outcome.FAILED, "error": Outcome.ERROR}
SAID |= dict.fromkeys(STATUSES, Outcome.TIMED_OUT)
RANKS = {Outcome.FAILED: 3, Outcome.TIMED_OUT: 3, Outcome.ERROR: 2, Outcome.SKIPPED: 1, Outcome.XFAILED: 1}


def parse_junit(pieces: Iterable[bytes], invoking_file: str = "") -> Cases:
    """Return the cases of one report; raises Broken where it is no whole report, Refused over a limit."""
    reader = _Reader(invoking_file)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = _refuse_doctype
    reader.parser = parser
    fed = 0
    try:
        for piece in _even(pieces):
            parser.Parse(piece.lstrip() if not fed else piece, False)
            fed += len(piece)
            if fed - parser.CurrentByteIndex > TOKEN_MOST + PIECE:
                raise Refused(f"a tag of over {TOKEN_MOST // PIECE} MiB")
    except expat.ExpatError as error:
        raise Broken(f"line {error.lineno}: {expat.errors.messages[error.code]}") from None
    except (LookupError, ValueError) as error:
        raise Broken(f"its encoding cannot be read: {error}") from None
    try:
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise Broken(f"truncated at line {error.lineno}" if fed else "the file is empty") from None
    if not reader.is_report:
        raise Broken(f"no report of tests: it begins with <{reader.root[:50]}>")
    return reader.cases


def _refuse_doctype(*_: object) -> None:
    raise Refused("it has a DOCTYPE")


def _even(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the same bytes in pieces of at least 1 MiB, but the last."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


class _Suite:
    """A suite element that is open."""

    __slots__ = ("failed", "file", "name", "number", "pytest")

    def __init__(
        self, attributes: dict[str, str], number: int, outer: _Suite | None, *, all_pytest: bool
    ) -> None:
        self.number = number
        self.name = attributes.get("name", "")
        self.file: str = attributes.get("file") or (outer.file if outer else "")
        self.pytest = all_pytest or self.name == "pytest"
        self.failed: tuple[Group, int] | None = None  # the newest case that failed


class _Reader:
    """What expat calls."""

    def __init__(self, invoking_file: str) -> None:
        self.parser: Any = None
        self.cases = Cases()
        self.root = ""
        self.is_report = False
        self._invoking_file = invoking_file
        self._count = 0
        self._depth = 0
        self._all_pytest = False
        self._outside = _Suite({}, 0, None, all_pytest=False)  # cases that stand in no suite
        self._open = [self._outside]
        self._opened = 0
        self._groups: dict[tuple[str, str, bool], Group] = {}
        self._texts = 0
        self._case: dict[str, str] | None = None
        self._case_depth = 0
        self._begin_case()

    def _begin_case(self) -> None:
        self._final: Attempt | None = None
        self._earlier: list[Attempt] = []
        self._output: KeptText | None = None
        self._child: tuple[str, dict[str, str]] | None = None
        self._text: KeptText | None = None
        self._text_depth = 0
        self._has_children = False  # that say something of it

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        depth = self._depth = self._depth + 1
        if depth > DEPTH_MOST:
            raise Refused(f"elements nested over {DEPTH_MOST} deep")
        if len(attributes) > ATTRIBUTES_MOST or len("".join(attributes.values())) > ATTRIBUTE_MOST:
            self._check(attributes)
        if tag == "testcase" or (":" in tag and (tag := tag.rpartition(":")[2]) == "testcase"):
            if self._case is not None:
                self._finish(self._case)
            self._case, self._case_depth = attributes, depth
            self.is_report = True
        elif self._text is not None:
            self.parser.CharacterDataHandler = self._text.add if tag == "stackTrace" else None
        elif self._case is not None:
            if self._depth == self._case_depth + 1:
                self._start_child(tag, attributes)
        else:
            self._start_outside(tag, attributes)
        if depth == 1:
            self.root = tag

    @staticmethod
    def _check(attributes: dict[str, str]) -> None:
        if len(attributes) > ATTRIBUTES_MOST:
            raise Refused(f"an element of {len(attributes):,} attributes, limit {ATTRIBUTES_MOST}")
        longest = max(map(len, attributes.values()))
        if longest > ATTRIBUTE_MOST:
            raise Refused(f"an attribute of {longest:,} characters, limit {ATTRIBUTE_MOST:,}")

    def _start_child(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in OUTPUTS:
            self._has_children = True
            self._output = self._output or KeptText()
            self._collect(self._output)
        elif tag in FINAL or tag in EARLIER:
            self._has_children = True
            self._child = (tag, attributes)
            self._collect(KeptText())

    def _start_outside(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testsuite":
            self.is_report = True
            self._opened += 1
            self._open.append(_Suite(attributes, self._opened, self._open[-1], all_pytest=self._all_pytest))
        elif tag == "testsuites":
            self.is_report = True
            self._all_pytest = self._all_pytest or attributes.get("name") == "pytest tests"
        elif tag in OUTPUTS and self._open[-1].failed:
            self._collect(KeptText())

    def _collect(self, text: KeptText) -> None:
        self._text, self._text_depth = text, self._depth
        self.parser.CharacterDataHandler = text.add

    def end(self, tag: str) -> None:
        depth = self._depth
        self._depth = depth - 1
        if self._text is not None:
            if depth == self._text_depth:
                self._end_text(self._text)
            else:
                self.parser.CharacterDataHandler = self._text.add
        elif self._case is not None:
            if depth == self._case_depth:
                self._finish(self._case)
        elif len(self._open) > 1 and (tag == "testsuite" or tag.endswith(":testsuite")):
            self._open.pop()

    def _end_text(self, text: KeptText) -> None:
        self._text = None
        self.parser.CharacterDataHandler = None
        if self._case is None:
            self._explain(text)
        elif self._child:
            tag, attributes = self._child
            self._child = None
            attempt = self._attempt(tag, attributes, text)
            if tag in EARLIER:
                self._earlier.append(attempt)
            elif self._final is None or RANKS[attempt.outcome] > RANKS[self._final.outcome]:
                self._final = attempt

    def _attempt(self, tag: str, attributes: dict[str, str], text: KeptText) -> Attempt:
        kind = attributes.get("type", "")
        outcome = FINAL.get(tag, Outcome.ERROR if tag.endswith("Error") else Outcome.FAILED)
        if tag == "skipped" and kind == "pytest.xfail":
            outcome = Outcome.XFAILED
        if outcome in FAILING:
            self._texts += 1
        if self._texts > TEXTS_MOST:
            return Attempt(outcome)
        message = attributes.get("message") or text.first_line()
        if outcome in FAILING and is_timeout(kind, message):
            outcome = Outcome.TIMED_OUT
        return Attempt(
            outcome,
            beginning(message, MESSAGE_MOST),
            beginning(kind, MESSAGE_MOST),
            text.both(STACK_MOST) if outcome in FAILING else "",
        )

    def _finish(self, case: dict[str, str]) -> None:
        """Add the case that ends here."""
        self._case = None
        self._count += 1
        if self._count > MOST_CASES:
            raise Refused(f"over {MOST_CASES:,} cases")
        suite = self._open[-1]
        key = (case.get("file") or suite.file, case.get("classname", suite.name), suite.pytest)
        group = self._groups.get(key) or self._new_group(key)
        name, said = case.get("name", ""), case.get("time")
        time = milliseconds(said)
        if time is None and is_too_long(said):
            self.cases.too_long += 1
        if not self._has_children and "status" not in case and "result" not in case:
            if not group.add_passed(name, time, suite.number):
                self._add_again(group, name, JUST_PASSED, time)
            return
        attempts = self._attempts(case)
        position = self._add_again(group, name, attempts, time)
        if attempts is not JUST_PASSED:
            suite.failed = (group, position) if attempts[-1].outcome in FAILING else None
        self._begin_case()

    def _add_again(self, group: Group, name: str, attempts: Sequence[Attempt], time: int | None) -> int:
        """Add attempts of a case that may be known; returns its position."""
        suite = self._open[-1]
        if suite.pytest and group.repeated_in(name, suite.number):
            group.newest_failed(name)
        return group.add(name, attempts, time, suite.number)

    def _attempts(self, case: dict[str, str]) -> Sequence[Attempt]:
        final = self._final
        if final is None and ("status" in case or "result" in case):
            words = {case.get("status", "").casefold(), case.get("result", "").casefold()}
            if said := next((SAID[word] for word in words if word in SAID), None):
                final = Attempt(said)
            elif words & NOT_RUN:
                final = Attempt(Outcome.SKIPPED)
        if final is None:
            return [*self._earlier, *JUST_PASSED] if self._earlier else JUST_PASSED
        if final.outcome in FAILING and "line" in case:
            final = final._replace(line=line_number(case["line"], from_zero=self._open[-1].pytest))
        if self._output is not None and final.outcome in FAILING and self._texts <= TEXTS_MOST:
            final = final._replace(output=self._output.tail(OUTPUT_MOST))
        return [*self._earlier, final]

    def _explain(self, text: KeptText) -> None:
        """Keep a suite's output for the case before it that failed without a word, as Bazel writes it."""
        suite = self._open[-1]
        if suite.failed:
            group, position = suite.failed
            newest = group.attempts[position][-1]
            if not newest.stack and not newest.output:
                group.attempts[position][-1] = newest._replace(output=text.tail(WHOLE_LOG_MOST))

    def _new_group(self, key: tuple[str, str, bool]) -> Group:
        file, classname, pytest = key
        where = place(file, classname, pytest=pytest)
        group = self.cases.group(Place(where.file, where.suite, self._invoking_file))
        self._groups[key] = group
        return group
