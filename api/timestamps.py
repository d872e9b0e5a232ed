"""How the API writes points in time."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, by the wall clock."""
    return datetime.now(UTC)


def time_text(moment: datetime) -> str:
    """A Time as in conditions and metadata: RFC 3339 with whole seconds, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """A MicroTime as in Leases and Events: RFC 3339 with six digits of a second, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
