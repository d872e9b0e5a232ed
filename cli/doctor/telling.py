"""A diagnosis for people and for programs."""

from collections.abc import Sequence
from typing import Any

from cli.doctor.findings import Finding, Level, plural, worst
from cli.paper import Paper

API_VERSION = "cli.lanewise.dev/v1alpha1"
KIND = "Diagnosis"


def text(findings: Sequence[Finding], paper: Paper) -> str:
    """A line for each, with its remedy below it, and how many of each kind there are."""
    width = max((len(finding.check) for finding in findings), default=0)
    colours = {Level.OK: paper.green, Level.WARNING: paper.yellow, Level.FAILURE: paper.red}
    lines = []
    for finding in findings:
        word = colours[finding.level](f"{finding.level.word:<7}")
        indent = len("warning") + 2 + width + 2
        told = paper.fold(finding.what, indent).lstrip(" ")
        lines.append(f"{word}  {finding.check:<{width}}  {told}")
        if finding.remedy:
            lines.append(paper.fold(f"-> {finding.remedy}", indent))
    return "\n".join((*lines, "", summary(findings)))


def summary(findings: Sequence[Finding]) -> str:
    """All in one line."""
    bad = [
        plural(count, level.word)
        for level in (Level.FAILURE, Level.WARNING)
        if (count := sum(finding.level is level for finding in findings))
    ]
    return f"{plural(len(findings), 'check')}: {', '.join(bad) if bad else 'all is well'}"


def document(findings: Sequence[Finding], node: str | None) -> dict[str, Any]:
    """The same for programs; the shape is promised in docs/operations.md."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **({"node": node} if node else {}),
        "worst": worst(findings).word,
        "findings": [
            {
                "check": finding.check,
                "level": finding.level.word,
                "what": finding.what,
                **({"remedy": finding.remedy} if finding.remedy else {}),
            }
            for finding in findings
        ],
    }
