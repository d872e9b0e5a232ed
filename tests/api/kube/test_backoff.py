"""How waits grow."""

from hypothesis import given
from hypothesis import strategies as st

from api.kube.backoff import Backoff


def test_waits_double_up_to_the_limit():
    """0.8 s at first, half a minute at most."""
    backoff = Backoff(clock=lambda: 0.0, chance=lambda: 1.0)
    assert [backoff.delay_seconds() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_healthy_spell_starts_over():
    """Two minutes after the end of the last wait it is forgotten; the wait itself does not count as health."""
    now = [0.0]
    backoff = Backoff(first_seconds=8.0, clock=lambda: now[0], chance=lambda: 1.0)
    assert backoff.delay_seconds() == 8.0
    now[0] = 8.0 + 119.0
    assert backoff.delay_seconds() == 16.0
    now[0] += 16.0 + 120.0
    assert backoff.delay_seconds() == 8.0


@given(failures=st.integers(1, 100), chance=st.floats(0.0, 1.0))
def test_chance_takes_at_most_half(failures, chance):
    """Never close to nothing, never above the limit."""
    backoff = Backoff(clock=lambda: 0.0, chance=lambda: chance)
    for _ in range(failures - 1):
        backoff.delay_seconds()
    step = min(30.0, 0.8 * 2 ** (failures - 1))
    assert step / 2 <= backoff.delay_seconds() <= step


def test_years_of_failures_do_not_overflow():
    """The exponent has an end."""
    backoff = Backoff(clock=lambda: 0.0, chance=lambda: 1.0)
    assert [backoff.delay_seconds() for _ in range(5000)][-1] == 30.0
