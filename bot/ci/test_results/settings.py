"""The options of test results."""

from __future__ import annotations

from dataclasses import dataclass

from bot.ci.test_results.environments import JobEnv, as_text, parse_table
from bot.core.settings import option


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """How test results are read."""

    job_env: JobEnv = option(  # noqa: RUF009 - a field, as the others
        "Where the tests of a job ran, where their reports do not say: a table from a regular expression over the "
        'job\'s name to what it means, {"gfx9": {"accelerator": "rocm"}}; the first that names a field decides.',
        parse_table,
        default=(),
        show=as_text,
    )
