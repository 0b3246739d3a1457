"""Pages of out-of-tree backends: health, one backend, metrics, levels, dispatches."""

from __future__ import annotations
