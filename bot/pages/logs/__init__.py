"""Pages and JSON of logs, failures and searches."""

from __future__ import annotations
