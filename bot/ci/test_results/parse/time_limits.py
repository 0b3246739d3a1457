"""Which failures say that the test was stopped at its time limit; a log may say so of a job, this is of one test."""

from __future__ import annotations

import re

STATUSES = frozenset({"timeout", "timedout", "timed_out", "timed-out"})
# cargo nextest, .NET; JUnit 4 has an exception of its own
_TYPES = re.compile(r"(?:test )?time-?out|(?:\w+\.)*TestTimedOutException", re.IGNORECASE)
_MESSAGES = re.compile(
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


def is_timeout(kind: str, message: str) -> bool:
    """Whether a failure of this type and message is the end of a time limit."""
    return bool(_TYPES.fullmatch(kind.strip()) or _MESSAGES.match(message[:LOOKED_AT].strip()))
