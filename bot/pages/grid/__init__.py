"""Pages of a branch: the grid, what is broken now, queues, metrics."""

from __future__ import annotations
