"""The surroundings of the bot, on loopback: a GitHub, the CIs of backends, and an identity provider."""

from __future__ import annotations
