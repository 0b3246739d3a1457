"""Small documents of jobs, with their trends: metrics, compiler caches, benchmarks; and contributions."""

from __future__ import annotations
