"""How long to wait before trying again.

The numbers are those of client-go's reflector (tools/cache/reflector.go): 0.8 s doubling to 30 s, forgotten after 2 min.
"""

import random
import time
from collections.abc import Callable


class Backoff:
    """Waits that double with each failure, each shortened by chance so that many clients do not come back together.

    Not for use by several threads.
    """

    def __init__(
        self,
        *,
        first_seconds: float = 0.8,
        limit_seconds: float = 30.0,
        healthy_seconds: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`healthy_seconds` without failure make it start over; `clock` is in seconds, `chance` between 0 and 1."""
        self._first = first_seconds
        self._limit = limit_seconds
        self._healthy = healthy_seconds
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self._resumed_at: float | None = None

    def delay_seconds(self) -> float:
        """A failure happened now: how long to wait. Between half and all of the step, so never close to nothing."""
        now = self._clock()
        if self._resumed_at is not None and now - self._resumed_at >= self._healthy:
            self._failures = 0
        # 2**30 is past any limit; the exponent is bounded because floats overflow after weeks of failures.
        step = min(self._limit, self._first * 2.0 ** min(self._failures, 30))
        delay = step * (0.5 + 0.5 * self._chance())
        self._failures += 1
        self._resumed_at = now + delay
        return delay
