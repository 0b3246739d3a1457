"""The parser of compiler caches' statistics, in the parser child: sccache's JSON, and ccache's names with numbers.

`sccache --show-stats --stats-format=json` writes one document; `ccache --print-stats` a name and a number in each line,
or one JSON object with `--format=json`. Their fields vary with the version: unknown ones are kept as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.job_reports.parse.documents import Limits, Problems, finish_parsing, read_documents, read_each
from bot.job_reports.parse.values import CacheStats, SkippedValue, as_count, as_object, as_text, cut, keep_raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.evidence.collect.parse.contract import ParserInput
    from bot.job_reports.parse.documents import Document
    from bot.job_reports.parse.values import Parsed

LIMITS = Limits(
    globs=("*.json", "*.jsonl", "*.txt", "*.tsv", "*.log"),
    bytes=16 * 1024 * 1024,
    rows=200,  # of a tool
    called="documents",
)
NAMES_MOST = 50  # languages, and reasons
LANGUAGE_MOST, REASON_MOST = 60, 120  # bytes
C_LANGUAGE = "C/C++"  # all that ccache compiles
CCACHE_HITS = ("direct_cache_hit", "preprocessed_cache_hit")
# what ccache itself counts as errors and as uncacheable, since 4.0: src/ccache/core/statistics.cpp
CCACHE_ERRORS = (
    "bad_input_file", "bad_output_file", "compiler_check_failed", "could_not_find_compiler",
    "error_hashing_extra_file", "internal_error", "missing_cache_file", "modified_input_file",
)  # fmt: skip
CCACHE_UNCACHEABLE = (
    "autoconf_test", "bad_compiler_arguments", "called_for_link", "called_for_preprocessing", "compile_failed",
    "compiler_produced_empty_output", "compiler_produced_no_output", "compiler_produced_stdout",
    "could_not_use_modules", "could_not_use_precompiled_header", "disabled", "multiple_source_files",
    "no_input_file", "output_to_stdout", "preprocessor_error", "recache", "unsupported_code_directive",
    "unsupported_compiler_option", "unsupported_environment_variable", "unsupported_source_encoding",
    "unsupported_source_language",
)  # fmt: skip
CCACHE_REMOTE = ("remote_storage_error", "remote_storage_timeout")  # of a call that then had no hit there
SCCACHE_ERRORS = ("cache_timeouts", "cache_read_errors", "cache_write_errors")
ADDED = ("requests", "executed", "errors", "not_cacheable", "write_seconds", "read_seconds", "documents")


def parse_stats(given: ParserInput) -> Parsed[CacheStats]:
    """Return the sums of each tool's documents."""
    problems, totals = Problems(), dict[str, CacheStats]()
    for document in read_documents(given, LIMITS.globs, most=LIMITS.bytes):
        for stats in _read(document, problems):
            total = totals.setdefault(stats.tool, CacheStats(tool=stats.tool))
            if total.documents < LIMITS.rows:
                _add(total, stats)
            else:
                problems.add(document.member, 0, f"over {LIMITS.rows} {LIMITS.called}")
    return finish_parsing([totals[tool] for tool in sorted(totals)], problems)


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a document without nesting: the keys on the way to a value, joined by `_`.

    >>> flatten({"stats": {"cache_hits": {"counts": {"C/C++": 3}}}})
    {'stats_cache_hits_counts_C/C++': 3}
    """
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}_")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _read(document: Document, problems: Problems) -> Iterable[CacheStats]:
    if b"direct_cache_hit" not in document.content or document.content.lstrip()[:1] in {b"{", b"["}:
        return read_each(document, problems, _of_object)
    try:
        return [_of_ccache(_lines(document))]
    except SkippedValue as error:
        problems.add(document.member, 0, str(error))
        return []


def _of_object(value: Any) -> CacheStats:
    document = as_object(value, "the document")
    return _of_ccache(document) if "direct_cache_hit" in document else _of_sccache(document)


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


def _lines(document: Document) -> dict[str, Any]:
    """Return the names and numbers of lines, divided by a tab; skip other lines."""
    lines = (line.partition("\t") for line in document.content.decode("utf-8", "replace").splitlines())
    return {
        cut(name.strip(), REASON_MOST): int(number)
        for name, _, number in lines
        if number.strip().isascii() and number.strip().isdigit() and len(number) < 20
    }


def _of_ccache(stats: dict[str, Any]) -> CacheStats:
    if "cache_miss" not in stats:
        raise SkippedValue("no statistics of ccache: cache_miss is missing")
    hits, misses = sum(_count(stats, name) for name in CCACHE_HITS), _count(stats, "cache_miss")
    reasons = {name: count for name in CCACHE_UNCACHEABLE if (count := _count(stats, name))}
    errors = sum(_count(stats, name) for name in CCACHE_ERRORS)
    return CacheStats(
        tool="ccache",
        requests=hits + misses + errors + sum(reasons.values()),
        executed=hits + misses,
        hits={C_LANGUAGE: hits},
        misses={C_LANGUAGE: misses},
        errors=errors + sum(_count(stats, name) for name in CCACHE_REMOTE),
        not_cacheable=sum(reasons.values()),
        reasons=reasons,
        documents=1,
        raw=keep_raw(stats),
    )


def _count(stats: Mapping[str, Any], name: str) -> int:
    return as_count(stats.get(name) or 0, name)


def _by_language(stats: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return counts by language; older versions have only the sum."""
    value = stats.get(name)
    if isinstance(value, int):
        return {"": as_count(value, name)} if value else {}
    counted = as_object(value if value is not None else {}, name)
    return _counts(counted.get("counts"), name, LANGUAGE_MOST)


def _counts(value: Any, name: str, longest: int) -> dict[str, int]:
    counts = as_object(value if value is not None else {}, name)
    if len(counts) > NAMES_MOST:
        raise SkippedValue(f"{name} has over {NAMES_MOST} entries")
    return {as_text(key, name, most=longest): as_count(number, name) for key, number in counts.items()}


def _seconds(stats: Mapping[str, Any], name: str) -> float:
    value = as_object(stats.get(name) or {}, name)
    return as_count(value.get("secs") or 0, name) + as_count(value.get("nanos") or 0, name) / 1e9


def _add(total: CacheStats, stats: CacheStats) -> None:
    for name in ADDED:
        setattr(total, name, getattr(total, name) + getattr(stats, name))
    for name in ("hits", "misses", "reasons"):
        counts = getattr(total, name)
        for key, number in getattr(stats, name).items():
            if key in counts or len(counts) < NAMES_MOST:
                counts[key] = counts.get(key, 0) + number
    total.version, total.raw = stats.version or total.version, stats.raw
