"""Pages and JSON of test results, disabled tests and lists about tests."""

from __future__ import annotations
