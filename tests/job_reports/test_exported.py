"""What sinks get of files that jobs left: one object each, in the shapes of PyTorch's statistics."""

from __future__ import annotations

import json

import pytest

from bot.core.feature import load
from bot.job_reports import exports
from tests.harness import UPSTREAM
from tests.job_reports.conftest import lines
from tests.job_reports.test_benchmarks import encoded, record
from tests.job_reports.test_caches import stats


async def copies(bot):
    """The objects of all files, as a sink of the layout `upstream` writes them: key -> lines."""
    keys = [(one["repository_id"], one["object_id"]) for one in await bot.rows("ci_source")]
    found = {}
    for export in exports.EXPORTS:
        shape = export.shapes["upstream"]
        async with bot.store.read() as tx:
            rows = await load(shape.read)(tx, export, keys)
        for row in rows.values():
            for one in load(shape.make)(export, row):
                found[one.key] = [json.loads(line) for line in one.content()]
    return found


@pytest.mark.logic
async def test_each_file_is_one_object_with_what_github_says_of_its_run(bot, jobs):
    metric = {
        "metric": "pytest.collect",
        "values": {"seconds": 2.5},
        "labels": {"shard": "1"},
        "from": "run.py:main",
    }
    job = await jobs.leaves("ootbot-metrics", {"m.jsonl": lines(metric)})
    await jobs.leaves("sccache-stats", json.dumps(stats({"C/C++": 3}, {"C/C++": 1})).encode())
    await jobs.leaves("benchmark-results", encoded(record(7.5), record(8.5, model="b")))
    found = await copies(bot)
    by_folder = {key.partition("/")[0]: (key, content) for key, content in found.items()}
    key, (line,) = by_folder["ossci_uploaded_metrics"]
    assert key.startswith(f"ossci_uploaded_metrics/{UPSTREAM}/main/{job.run.id}/1/")
    assert (line["job_id"], line["metric_name"], line["calling_function"]) == (
        job.id,
        "pytest.collect",
        "main",
    )
    assert json.loads(line["info"]) == {"seconds": 2.5, "shard": "1"}
    _, (cache,) = by_folder["sccache_stats"]
    assert cache["stats_cache_hits_counts_C/C++"] == 3
    _, points = by_folder["v3"]
    assert [one["metric"]["benchmark_values"] for one in points] == [[7.5], [8.5]]
    assert {(one["schema_version"], one["repo"], one["head_branch"]) for one in points} == {
        ("v3", UPSTREAM, "main")
    }
