"""Compiler caches: how much of a build they saved, language by language."""

from __future__ import annotations
