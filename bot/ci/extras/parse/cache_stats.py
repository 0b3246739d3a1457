"""The parser of compiler caches' statistics, in the parser child: sccache's JSON, and ccache's lines.

`sccache --show-stats --stats-format=json` writes one document, `ccache --print-stats` a name and a number in each line.
Their fields vary with the version: what is not known is kept as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.extras.parse.documents import (
    LeftOut,
    Problems,
    as_count,
    as_object,
    as_text,
    cut,
    finish,
    keep_raw,
    read_documents,
    read_values,
)
from bot.ci.extras.parse.parsed import CacheStats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.collect.parse.contract import Given
    from bot.ci.extras.parse.documents import Document
    from bot.ci.extras.parse.parsed import Parsed

GLOBS = ("*.json", "*.jsonl", "*.txt", "*.tsv", "*.log")
BYTES_MOST = 16 * 1024 * 1024
DOCUMENTS_MOST = 200  # of a job
NAMES_MOST = 50  # languages, and reasons
LANGUAGE_MOST, REASON_MOST = 60, 120  # bytes
C = "C/C++"  # all that ccache compiles
CCACHE_HITS = ("direct_cache_hit", "preprocessed_cache_hit")
CCACHE_ERRORS = (
    "internal_error", "missing_cache_file", "error_hashing_extra_file", "remote_storage_error",
    "remote_storage_timeout", "bad_output_file",
)  # fmt: skip
CCACHE_UNCACHEABLE = (
    "autoconf_test", "bad_compiler_arguments", "called_for_link", "called_for_preprocessing", "compile_failed",
    "compiler_check_failed", "compiler_produced_empty_output", "compiler_produced_no_output",
    "compiler_produced_stdout", "could_not_find_compiler", "could_not_use_modules",
    "could_not_use_precompiled_header", "disabled", "multiple_source_files", "no_input_file", "output_to_stdout",
    "preprocessor_error", "recache", "unsupported_code_directive", "unsupported_compiler_option",
    "unsupported_environment_variable", "unsupported_source_encoding", "unsupported_source_language",
)  # fmt: skip
SCCACHE_ERRORS = ("cache_timeouts", "cache_read_errors", "cache_write_errors")


def parse_stats(given: Given) -> Parsed[CacheStats]:
    """Return the statistics of each tool."""
    problems, found = Problems(), dict[str, CacheStats]()
    for document in read_documents(given, GLOBS, most=BYTES_MOST):
        for one in _read(document, problems):
            total = found.setdefault(one.tool, CacheStats(tool=one.tool))
            if total.documents == DOCUMENTS_MOST:
                problems.add(document.member, 0, f"over {DOCUMENTS_MOST} documents")
                continue
            _add(total, one)
    return finish([found[tool] for tool in sorted(found)], problems)


def _read(document: Document, problems: Problems) -> list[CacheStats]:
    if b"direct_cache_hit" in document.content:
        try:
            return [_of_ccache(document)]
        except LeftOut as error:
            problems.add(document.member, 0, str(error))
            return []
    found = []
    for one in read_values(document, problems):
        try:
            found.append(_of_sccache(as_object(one.value, "the document")))
        except LeftOut as error:
            problems.add(one.member, one.line, str(error))
    return found


def _of_sccache(document: dict[str, Any]) -> CacheStats:
    stats = as_object(document.get("stats"), "stats")
    hits, misses = _by_language(stats, "cache_hits"), _by_language(stats, "cache_misses")
    errors = sum(_by_language(stats, "cache_errors").values())
    return CacheStats(
        tool="sccache",
        version=as_text(document.get("version"), "version", most=40),
        requests=_count(stats, "compile_requests"),
        executed=_count(stats, "requests_executed"),
        hits=hits,
        misses=misses,
        errors=errors + sum(_count(stats, name) for name in SCCACHE_ERRORS),
        not_cacheable=_count(stats, "requests_not_cacheable"),
        reasons=_counts(stats.get("not_cached"), "not_cached", REASON_MOST),
        write_seconds=_seconds(stats, "cache_write_duration"),
        read_seconds=_seconds(stats, "cache_read_hit_duration"),
        documents=1,
        raw=keep_raw(flatten(document)),
    )


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a document without nesting: the keys on the way to a value, joined by `_`.

    >>> flatten({"stats": {"cache_hits": {"counts": {"C/C++": 3}}}})
    {'stats_cache_hits_counts_C/C++': 3}
    """
    found: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{key}_")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _of_ccache(document: Document) -> CacheStats:
    stats: dict[str, int] = {}
    for line in document.content.decode("utf-8", "replace").splitlines():
        name, _, number = line.partition("\t")
        if number.strip().isascii() and number.strip().isdigit():
            stats[cut(name.strip(), REASON_MOST)] = as_count(int(number), name[:40])
    if "cache_miss" not in stats:
        raise LeftOut("no statistics of ccache: cache_miss is missing")
    hits, misses = sum(stats.get(name, 0) for name in CCACHE_HITS), stats["cache_miss"]
    reasons = {name: stats[name] for name in CCACHE_UNCACHEABLE if stats.get(name)}
    return CacheStats(
        tool="ccache",
        requests=hits + misses + sum(reasons.values()),
        executed=hits + misses,
        hits={C: hits},
        misses={C: misses},
        errors=sum(stats.get(name, 0) for name in CCACHE_ERRORS),
        not_cacheable=sum(reasons.values()),
        reasons=reasons,
        documents=1,
        raw=keep_raw(dict(stats)),
    )


def _count(stats: Mapping[str, Any], name: str) -> int:
    return as_count(stats.get(name) or 0, name)


def _by_language(stats: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return counts by language; older versions have no more than the sum."""
    value = stats.get(name)
    if isinstance(value, int):
        return {"": as_count(value, name)} if value else {}
    counted = as_object(value if value is not None else {}, name)
    return _counts(counted.get("counts"), name, LANGUAGE_MOST)


def _counts(value: Any, name: str, longest: int) -> dict[str, int]:
    counts = as_object(value if value is not None else {}, name)
    if len(counts) > NAMES_MOST:
        raise LeftOut(f"{name} has over {NAMES_MOST} entries")
    return {as_text(key, name, most=longest): as_count(number, name) for key, number in counts.items()}


def _seconds(stats: Mapping[str, Any], name: str) -> float:
    value = as_object(stats.get(name) or {}, name)
    return as_count(value.get("secs") or 0, name) + as_count(value.get("nanos") or 0, name) / 1e9


def _add(total: CacheStats, one: CacheStats) -> None:
    for name in (
        "requests",
        "executed",
        "errors",
        "not_cacheable",
        "write_seconds",
        "read_seconds",
        "documents",
    ):
        setattr(total, name, getattr(total, name) + getattr(one, name))
    for name in ("hits", "misses", "reasons"):
        counts = getattr(total, name)
        for key, number in getattr(one, name).items():
            if key in counts or len(counts) < NAMES_MOST:
                counts[key] = counts.get(key, 0) + number
    total.version, total.raw = one.version or total.version, one.raw
