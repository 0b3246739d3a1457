"""How a case ended, by the elements, attributes and words of its producer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.ci.test_results.parse.cases import FAILING, JUST_PASSED, PASS, Attempt, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EARLIER = frozenset({"rerun", "flakyFailure", "flakyError", "rerunFailure", "rerunError"})
FINAL = {"failure": Outcome.FAILED, "error": Outcome.ERROR, "skipped": Outcome.SKIPPED}
NOT_RUN = frozenset({"notrun", "disabled", "suppressed", "skipped"})
TIMED_OUT = frozenset({"timeout", "timedout", "timed_out", "timed-out"})
STATUSES = {
    "fail": Outcome.FAILED,
    "failed": Outcome.FAILED,
    "failure": Outcome.FAILED,
    "error": Outcome.ERROR,
}
STATUSES |= dict.fromkeys(TIMED_OUT, Outcome.TIMED_OUT)
RANKS = {Outcome.FAILED: 3, Outcome.TIMED_OUT: 3, Outcome.ERROR: 2, Outcome.SKIPPED: 1, Outcome.XFAILED: 1}
EXPECTED = re.compile(r"TEST_CASE tagged with !(?:mayfail|shouldfail)")  # Catch2, beside the failure
UNABLE = (  # of CTest: it lists these tests among those that failed
    "Unable to find executable", "Required Files Missing", "Missing Configuration", "Failed to start",
    "Failed to change working directory", "Insufficient resources",
)  # fmt: skip
TEARDOWN = "failed on teardown with"  # pytest
# cargo nextest, .NET; JUnit 4 has an exception of its own
_TIMEOUT_TYPES = re.compile(r"(?:test )?time-?out|(?:\w+\.)*TestTimedOutException", re.IGNORECASE)
_TIMEOUT_MESSAGES = re.compile(
    r"(?:Failed: )?Timeout (?:>|\(>)[\d.]+s"  # pytest-timeout
    r"|Timeout$"  # ctest
    r"|(?:thrown: \")?Exceeded timeout of \d+ ?ms"  # Jest
    r"|(?:Error: )?Timeout of \d+ms exceeded"  # mocha
    r"|Test exceeded Timeout value of \d+"  # NUnit
    r"|Test execution timed out after \d+"  # xUnit.net
    r"|panic: test timed out after \d"  # go
    r"|(?:(?:\w+\.)*TimeoutException: )?[\w$]+\([^)]*\) timed out after \d+ \w+"  # JUnit 5
)
LOOKED_AT = 300  # characters of a message
# lines that say which test failed, not why: of go, TAP
_NO_MESSAGE = re.compile(r"=== (?:RUN|PAUSE|CONT|NAME)\b|--- (?:FAIL|PASS|SKIP):|not ok\b|#?\s*Failed test\b")
GENERIC = frozenset({"Failed", "Failure"})  # messages of gotestsum and go-junit-report


def is_timeout(kind: str, message: str) -> bool:
    """Whether a failure of this type and message is the end of a time limit of the test."""
    matched = _TIMEOUT_TYPES.fullmatch(kind.strip()) or _TIMEOUT_MESSAGES.match(message[:LOOKED_AT].strip())
    return bool(matched)


def outcome_of_child(tag: str, kind: str) -> Outcome:
    """Return the outcome that a child of a case says, by its tag and type."""
    if tag == "skipped" and kind == "pytest.xfail":
        return Outcome.XFAILED
    return FINAL.get(tag, Outcome.ERROR if tag.endswith("Error") else Outcome.FAILED)


def message_of(given: str, text: str, case: Mapping[str, str]) -> str:
    """Return the message of a failure: its own, or the first line of its text that says more than the test's name."""
    if given and given not in GENERIC and not _NO_MESSAGE.match(given):
        return given
    name, classname = case.get("name", ""), case.get("classname", "")
    names = {name, f"{classname}::{name}", f"{classname}.{name}"}
    for line in text.strip().splitlines():
        said = line.strip()
        if said and said not in names and not _NO_MESSAGE.match(said):
            return said.removeprefix("# ").strip()
    return given or text.strip().partition("\n")[0].strip()


def attempts_of_case(
    case: Mapping[str, str], children: Mapping[str, Attempt], earlier: Sequence[tuple[str, Attempt]]
) -> Sequence[Attempt]:
    """Return the attempts of a case, the final one last.

    `children` are its failure, error and skipped elements by tag, `earlier` those of attempts before, with their tags.
    """
    final = _final(case, children)
    tried = [attempt for _, attempt in earlier]
    if final is None:
        return [*tried, *JUST_PASSED] if tried else JUST_PASSED
    if final.outcome in FAILING and case.get("flaky") == "true":  # Flank: it passed when it was tried again
        return [*tried, final, PASS]
    if final.outcome in FAILING and any(tag.startswith("flaky") for tag, _ in earlier):
        # it passed, and its runner is told to fail it for being flaky
        first = tried[0]
        explained = final._replace(stack=final.stack or first.stack, output=final.output or first.output)
        return [*tried[1:], PASS, explained]
    return [*tried, final]


def _final(case: Mapping[str, str], children: Mapping[str, Attempt]) -> Attempt | None:
    said = max(children.values(), key=lambda one: RANKS[one.outcome], default=None)
    skipped = children.get("skipped")
    words = {case.get("status", "").casefold(), case.get("result", "").casefold()}
    if said is None:
        status = next((STATUSES[word] for word in words if word in STATUSES), None)
        if status is not None:
            return Attempt(status)
        return Attempt(Outcome.SKIPPED) if words & NOT_RUN else None
    if said.outcome in FAILING:
        if skipped and (skipped.type == "todo" or EXPECTED.match(skipped.message)):
            return said._replace(outcome=Outcome.XFAILED, stack="", output="")
        if "disabled" in words or (skipped and said.message.startswith("Skipped:")):  # the second: minitest
            return said._replace(outcome=Outcome.SKIPPED, stack="", output="")
    elif "notrun" in words and said.message.startswith(UNABLE):
        return said._replace(outcome=Outcome.ERROR)
    return said
