"""An in-memory GitHub, served on loopback over HTTP: REST API, webhooks and web pages."""

from __future__ import annotations

from bot.demo.github.accounts import App
from bot.demo.github.faults import Fault, Faults
from bot.demo.github.models import Call, CheckRun, Comment, Delivery, Dispatch, Pull, Repo, Run, WorkflowJob
from bot.demo.github.simulated_github import SimulatedGitHub

__all__ = [
    "App",
    "Call",
    "CheckRun",
    "Comment",
    "Delivery",
    "Dispatch",
    "Fault",
    "Faults",
    "Pull",
    "Repo",
    "Run",
    "SimulatedGitHub",
    "WorkflowJob",
]
