"""Rows of utilization: jobs, and sums by day and week."""

from __future__ import annotations
