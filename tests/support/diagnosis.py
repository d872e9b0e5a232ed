"""Findings as a test compares them."""

from collections.abc import Iterable

from cli.doctor.findings import Finding


def lines(findings: Iterable[Finding]) -> list[str]:
    """`failure driver: the kernel module nvidia is not loaded`; every one that is not ok has a remedy."""
    told = []
    for finding in findings:
        assert bool(finding.remedy) == bool(finding.level), finding
        told.append(f"{finding.level.word} {finding.check}: {finding.what}")
    return told


def trouble(findings: Iterable[Finding]) -> list[str]:
    """Only what is not ok."""
    return [line for line in lines(findings) if not line.startswith("ok ")]
