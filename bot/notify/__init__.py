"""Telling people: webhooks to their chat, feeds, badges, a daily digest."""

from __future__ import annotations
