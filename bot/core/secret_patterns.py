"""What do secrets look like that GitHub did not mask? Patterns of RE2, for all texts of strangers that are stored."""

from __future__ import annotations

TOKENS = (
    r"gh[pousr]_[A-Za-z0-9]{36,}",
    r"ghs_[A-Za-z0-9_.\-]{36,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"hf_[A-Za-z0-9]{30,}",
    r"npm_[A-Za-z0-9]{36,}",
    r"glpat-[A-Za-z0-9_\-]{20,}",
    r"xox[abeoprs]-[A-Za-z0-9\-]{10,}",
    r"pypi-[A-Za-z0-9_\-]{50,}",
    r"dckr_[a-z]{2,5}_[A-Za-z0-9_\-]{20,}",
    r"sk-(?:ant-|proj-)[A-Za-z0-9_\-]{20,}",
    r"AIza[A-Za-z0-9_\-]{35}",
    r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{16,}",  # a JWT: header, claims, signature
    # a secret of AWS is known by its name only
    r"(?i:aws_?secret_?access_?key|aws_?secret_?key|secretaccesskey)[\"']? {0,3}[:=] {0,3}[\"']?[A-Za-z0-9/+]{40}",
)
PRIVATE_KEY = "-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
KEY_END = "-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
