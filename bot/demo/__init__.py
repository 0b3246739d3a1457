"""What does a whole world around the bot look like? A GitHub, backends, an issuer on loopback."""

from __future__ import annotations
