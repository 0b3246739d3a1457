"""What the words mean: pure functions and values, no I/O, no clock, no settings, no SQL."""

from __future__ import annotations
