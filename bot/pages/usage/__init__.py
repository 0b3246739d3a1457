"""Pages and JSON of what machines did while jobs ran."""

from __future__ import annotations
