"""What every part uses: errors, the clock, settings, the log, metrics, reading JSON, escaping."""

from __future__ import annotations
