"""Dispatches, jobs, re-runs and runs: their tables and statements."""

from __future__ import annotations
