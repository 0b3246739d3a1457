"""Where does the bot's GitHub come from? One in-memory GitHub, served on loopback over HTTP."""

from __future__ import annotations

from bot.demo.github.accounts import App
from bot.demo.github.faults import Fault, Faults
from bot.demo.github.records import Call, Delivery, Dispatch
from bot.demo.github.simulated import SimulatedGitHub
from bot.demo.github.state import CheckRun, Comment, Pull, Repo, Run, WorkflowJob

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
