"""Which node is looked at next."""

import threading

from controller.queue import RETRY_MAX_SECONDS, RETRY_SECONDS, WorkQueue


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def a_queue(jitter=1.0):
    clock = Clock()
    return WorkQueue(clock, lambda: jitter), clock


def test_a_key_added_twice_is_handed_out_once():
    """Ten events are one pass."""
    queue, _ = a_queue()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert [queue.take(0), queue.take(0), queue.take(0)] == ["a", "b", None]


def test_a_key_in_work_is_not_handed_out_to_a_second_worker():
    """It comes again when the first is done."""
    queue, _ = a_queue()
    queue.add("a")
    assert queue.take(0) == "a"
    queue.add("a")
    assert queue.take(0) is None
    queue.done("a")
    assert queue.take(0) == "a"


def test_retries_come_later_and_later_and_begin_anew_after_success():
    """Doubling up to a limit, with jitter below it."""
    queue, clock = a_queue()
    delays = []
    queue.add("a")
    for _ in range(10):
        assert queue.take(0) == "a"
        queue.done("a", retry=True)
        start = clock.now
        while queue.take(0) is None:
            clock.now += 0.25
        delays.append(clock.now - start)
        queue.done("a", retry=True)
        clock.now += RETRY_MAX_SECONDS
    assert delays[0] == RETRY_SECONDS
    assert delays == sorted(delays)
    assert max(delays) == RETRY_MAX_SECONDS
    assert queue.take(0) == "a"
    queue.done("a")
    queue.add("a")
    queue.take(0)
    queue.done("a", retry=True)
    clock.now += RETRY_SECONDS
    assert queue.take(0) == "a"


def test_jitter_spreads_retries():
    """A thousand nodes that failed together do not come back together."""
    queue, clock = a_queue(jitter=0.0)
    queue.add("a")
    queue.take(0)
    queue.done("a", retry=True)
    clock.now += RETRY_SECONDS / 2
    assert queue.take(0) == "a"


def test_the_earliest_of_two_moments_counts():
    """A later one asked for afterwards does not put it off; the overtaken one does not come."""
    queue, clock = a_queue()
    queue.add_at("a", 140)
    queue.add_at("a", 120)
    queue.add_at("a", 130)
    clock.now = 120
    assert queue.take(0) == "a"
    queue.done("a")
    clock.now = 150
    assert queue.take(0) is None


def test_closing_lets_waiting_workers_go():
    """No thread outlives it."""
    queue, _ = a_queue()
    results = []
    worker = threading.Thread(target=lambda: results.append(queue.take()))
    worker.start()
    queue.close()
    worker.join(5)
    assert results == [None]


def test_many_workers_never_share_a_key():
    """Serial for each key, under load."""
    queue = WorkQueue()
    busy: set[str] = set()
    shared = []
    count = [0]
    lock = threading.Lock()

    def work():
        while (key := queue.take(2)) is not None:
            with lock:
                shared.extend({key} & busy)
                busy.add(key)
            with lock:
                busy.discard(key)
                count[0] += 1
            queue.done(key)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(400):
        queue.add(str(number % 7))
    while queue.take(0) is not None:
        pass
    queue.close()
    for thread in threads:
        thread.join(5)
    assert shared == []


def test_pause_of_another_user_doubles_up_to_its_own_limit():
    """And begins anew after a success; news does not wait for it."""
    queue = WorkQueue(lambda: 0.0, lambda: 1.0, retry_seconds=1.0, retry_max_seconds=3.0)

    def pause():
        queue.done("a", retry=True)
        (due,) = queue._due.values()
        queue._due.clear()
        queue._later.clear()
        return due

    assert [pause() for _ in range(4)] == [1.0, 2.0, 3.0, 3.0]
    queue.done("a")
    assert pause() == 1.0
    queue.add("a")
    assert queue.take() == "a"
