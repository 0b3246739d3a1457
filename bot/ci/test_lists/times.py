"""How long the files and classes of a suite take: means over jobs, and what stands for jobs that are not known. Pure.

The shards of a job are one job: together they ran the file.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

DEFAULT = "default"
DIGITS = 3  # of seconds

Seconds = dict[str, float]  # by file, or by file and class with a NUL between
Times = dict[str, dict[str, Seconds]]  # by base name and configuration


class Spent(NamedTuple):
    """What one shard of a job spent on a class."""

    job: Hashable  # the same for all shards of a job in a run
    base_name: str
    config: str
    file: str  # that launched it
    suite: str
    milliseconds: int


def file_times(spent: Iterable[Spent]) -> Times:
    """Return how long files take."""
    return _means((one.base_name, one.config, one.file, one.job, one.milliseconds) for one in spent)


def class_times(spent: Iterable[Spent]) -> Times:
    """Return how long classes take."""
    return _means(
        (one.base_name, one.config, f"{one.file}\0{one.suite}", one.job, one.milliseconds) for one in spent
    )


def with_defaults(times: Times) -> Times:
    """Return times with `default` for jobs that are not known: means over base names, and over configurations."""
    known = {base_name: configs for base_name, configs in times.items() if base_name != DEFAULT}
    configs = sorted({config for each in known.values() for config in each})
    over_names = {
        config: _mean(each[config] for each in known.values() if config in each) for config in configs
    }
    return known | {DEFAULT: over_names | {DEFAULT: _mean(over_names.values())}} if known else {}


def round_times(times: Times) -> Times:
    """Return times in as many digits as are sent."""
    return {
        base_name: {
            config: {name: round(value, DIGITS) for name, value in seconds.items()}
            for config, seconds in configs.items()
        }
        for base_name, configs in times.items()
    }


def by_file_and_class(times: Times) -> dict[str, dict[str, dict[str, Seconds]]]:
    """Return times of classes in a mapping by file."""
    found: dict[str, dict[str, dict[str, Seconds]]] = {}
    for base_name, configs in times.items():
        for config, seconds in configs.items():
            files = found.setdefault(base_name, {}).setdefault(config, {})
            for name, value in seconds.items():
                file, _, suite = name.partition("\0")
                files.setdefault(file, {})[suite] = value
    return found


def best_times(
    times: Mapping[str, Mapping[str, Mapping[str, float]]], base_name: str, config: str
) -> Seconds:
    """Return the seconds that are best for a job: its own, then those of its configuration, then of any."""
    found: Seconds = {}
    for base, name in ((DEFAULT, DEFAULT), (DEFAULT, config), (base_name, config)):
        found |= times.get(base, {}).get(name, {})
    return found


def _means(measured: Iterable[tuple[str, str, str, Hashable, int]]) -> Times:
    """Return, in seconds, the mean over jobs of the sum of milliseconds of each."""
    sums: defaultdict[tuple[str, str, str], defaultdict[Hashable, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for base_name, config, name, job, time_ms in measured:
        sums[base_name, config, name][job] += time_ms
    found: Times = {}
    for (base_name, config, name), by_job in sorted(sums.items()):
        found.setdefault(base_name, {}).setdefault(config, {})[name] = fmean(by_job.values()) / 1000
    return found


def _mean(several: Iterable[Mapping[str, float]]) -> Seconds:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for seconds in several:
        for name, value in seconds.items():
            values[name].append(value)
    return {name: fmean(found) for name, found in sorted(values.items())}
