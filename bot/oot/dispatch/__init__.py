"""Dispatching: which backends an upstream event is sent to, and when."""

from __future__ import annotations
