"""Parsing files of strangers: all that the parser child may import of collecting."""

from __future__ import annotations
