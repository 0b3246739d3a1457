"""Documents that the demo's jobs leave: statistics of a compiler cache, metrics of a script, benchmarks.

Each tells a story over the pushes of a month: a cache that lost one language, a step that became slower, a model that
did on one device.
"""

from __future__ import annotations

import json

CACHE_BROKE, COLLECT_SLOWED, MODEL_SLOWED = 36, 32, 33  # pushes, the oldest is 0
MODELS = (
    ("resnet50", 12.4, 1.62),
    ("BERT_pytorch", 31.8, 1.91),
    ("llama2_7b", 182.0, 1.38),
    ("timm_vit", 22.6, 1.47),
)
SLOWED = "BERT_pytorch"


def cache_stats(number: int, *, broke: int = CACHE_BROKE) -> dict[str, bytes]:
    """Return what sccache says after a build."""
    compiled = 1_840 + number * 13 % 60
    rust = 264 + number * 7 % 20
    cpp_misses, rust_misses = compiled * (3 + number % 4) // 100, rust if number >= broke else rust // 20
    document = {
        "stats": {
            "compile_requests": compiled + rust + 104,
            "requests_unsupported_compiler": 0,
            "requests_not_compile": 26,
            "requests_not_cacheable": 78,
            "requests_executed": compiled + rust,
            "cache_errors": {"counts": {}, "adv_counts": {}},
            "cache_hits": {
                "counts": {"C/C++": compiled - cpp_misses, "Rust": rust - rust_misses},
                "adv_counts": {},
            },
            "cache_misses": {"counts": {"C/C++": cpp_misses, "Rust": rust_misses}, "adv_counts": {}},
            "cache_timeouts": 0,
            "cache_read_errors": 0,
            "cache_write_errors": 0,
            "cache_writes": cpp_misses + rust_misses,
            "cache_write_duration": {"secs": 41, "nanos": 5},
            "cache_read_hit_duration": {"secs": 97, "nanos": 81},
            "not_cached": {"-o": 41, "crate-type": 22, "multiple input files": 15},
        },
        "cache_location": "S3, name: ci-cache, prefix: /pull/",
        "cache_size": None,
        "max_cache_size": 10_737_418_240,
        "version": "0.8.1",
    }
    return {"sccache-stats.json": json.dumps(document).encode()}


def metrics(number: int, *, at: int) -> dict[str, bytes]:
    """Return the lines that a script of the test job emitted then."""
    seconds = 14.0 if number >= COLLECT_SLOWED else 10.0
    lines = [
        {
            "metric": "pytest.collect",
            "ts": at,
            "values": {"seconds": seconds + number * 7 % 9 / 10, "tests": 8_400 + number},
            "labels": {"shard": "1"},
            "from": "run_test.py:main",
        },
        {
            "metric": "target_determination",
            "ts": at + 1_000,
            "values": {"skipped_files": 40 + number % 7, "seconds": 3 + number % 5 / 10},
            "labels": {"mode": "heuristic"},
            "from": "determine.py:exclude",
        },
    ]
    return {"ootbot-metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode()}


def benchmarks(
    number: int, *, device: str, slower: float = 1.0, slowed: int = MODEL_SLOWED
) -> dict[str, bytes]:
    """Return records of each model on a device; from one push on, one of them takes longer."""
    records = []
    for place, (model, latency, speedup) in enumerate(MODELS):
        noise = 1 + ((number * 31 + place * 17) % 13 - 6) / 1_000
        late = 1.09 if model == SLOWED and number >= slowed else 1.0
        records += [
            _record(model, device, "abs_latency_ms", round(latency * slower * noise * late, 3)),
            _record(model, device, "speedup", round(speedup / noise / late, 3)),
        ]
    return {"benchmark-results.json": json.dumps(records).encode()}


def _record(model: str, device: str, metric: str, value: float) -> dict[str, object]:
    return {
        "benchmark": {"name": "inductor inference", "dtype": "bfloat16", "extra_info": {"device": device}},
        "model": {"name": model, "type": "OSS model", "backend": "inductor"},
        "metric": {"name": metric, "benchmark_values": [value]},
    }
