"""Is every event that GitHub's webhook schema names taken? Also those no handler is for: what is stored can be replayed."""

from __future__ import annotations

import pytest

from tests.serving import SQLITE

pytestmark = SQLITE

EVENTS = (
    "branch_protection_configuration", "branch_protection_rule", "check_run", "check_suite",
    "code_scanning_alert", "commit_comment", "content_reference", "create", "custom_property",
    "custom_property_values", "delete", "dependabot_alert", "deploy_key", "deployment",
    "deployment_protection_rule", "deployment_review", "deployment_status", "discussion", "discussion_comment",
    "fork", "github_app_authorization", "gollum", "installation", "installation_repositories",
    "installation_target", "issue_comment", "issue_dependencies", "issues", "label", "marketplace_purchase",
    "member", "membership", "merge_group", "meta", "milestone", "org_block", "organization", "package",
    "page_build", "personal_access_token_request", "ping", "project", "project_card", "project_column",
    "projects_v2", "projects_v2_item", "projects_v2_status_update", "public", "pull_request",
    "pull_request_review", "pull_request_review_comment", "pull_request_review_thread", "push",
    "registry_package", "release", "repository", "repository_advisory", "repository_dispatch",
    "repository_import", "repository_ruleset", "repository_vulnerability_alert", "secret_scanning_alert",
    "secret_scanning_alert_location", "secret_scanning_scan", "security_advisory", "security_and_analysis",
    "sponsorship", "star", "status", "sub_issues", "team", "team_add", "watch", "workflow_dispatch",
    "workflow_job", "workflow_run",
)  # fmt: skip


async def test_every_event_of_githubs_schema_is_taken_and_listed(bot):
    body = {"action": "created", "sender": {"login": "octocat", "id": 1}}
    refused = {}
    for event in EVENTS:
        answer = await bot.send(event, body, guid=f"guid-{event}")
        if answer != (202, {"ok": True, "delivery": f"guid-{event}"}):
            refused[event] = answer
    assert refused == {}
    await bot.settle()
    kept = {row["event"]: row["state"] for row in await bot.rows("delivery")}
    assert set(kept) == set(EVENTS)
    assert kept["projects_v2_item"] == "ignored"


@pytest.mark.parametrize("event", ["Issues", "issues-2", "issues.opened", "v\u00b2", "a" * 61])
async def test_what_can_be_no_event_is_refused(bot, event):
    status, answer = await bot.send(event, {})
    assert (status, answer["error"]) == (400, "invalid_header")
    assert await bot.rows("delivery") == []
