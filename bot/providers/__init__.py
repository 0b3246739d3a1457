"""Other CIs than GitHub Actions: CircleCI and Buildkite, which deliver here, and commit statuses on GitHub."""

from __future__ import annotations
