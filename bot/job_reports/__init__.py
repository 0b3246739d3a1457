"""Documents of jobs and their trends: benchmarks, compiler caches, metrics, selected tests; contributions."""

from __future__ import annotations
