"""Health of backends: daily sums, readiness, trends."""

from __future__ import annotations
