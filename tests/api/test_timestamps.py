"""Points in time as the API writes them."""

from datetime import UTC, datetime, timedelta, timezone

from api.timestamps import micro_time, time_text, utc_now

MOMENT = datetime(2026, 11, 30, 12, 0, 5, 1500, timezone(timedelta(hours=2)))


def test_times_are_written_in_utc():
    """Whatever zone they come in, with six digits for Leases and Events and whole seconds for the rest."""
    assert micro_time(MOMENT) == "2026-11-30T10:00:05.001500Z"
    assert time_text(MOMENT) == "2026-11-30T10:00:05Z"
    assert utc_now().tzinfo is UTC
