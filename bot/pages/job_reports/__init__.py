"""Pages of job reports: benchmarks, compiler caches, metrics, selected tests, contributions, stable commits."""

from __future__ import annotations
