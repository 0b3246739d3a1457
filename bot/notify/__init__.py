"""Telling people: webhooks to their chat, and a daily digest."""

from __future__ import annotations
