"""Progress of long steps: nothing of short ones, words with an estimate, and an end when they are not due."""

import pytest

from common.progress import Progress, StepStoppedError


class Watch:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


def test_a_long_step_says_how_far_it_is_and_what_is_left():
    """The percentage follows the records, the estimate the pace up to now; a short step shows nothing."""
    watch = Watch()
    progress = Progress("r1", watch, lambda: True)
    assert progress.text() == ""
    progress.begin("publishing", 1000)
    progress.advance(100)
    watch.seconds = 2
    assert progress.text() == ""
    found = []
    for seconds, n_records in ((60, 0), (120, 120), (36_000, 10), (36_001, 740)):
        watch.seconds = seconds
        progress.advance(n_records)
        found.append(progress.text())
    assert found == [
        "publishing, 10 %, about 9 minutes left",
        "publishing, 20 %, about 7 minutes left",
        "publishing, 20 %, about 33 hours left",
        "publishing, 95 %, about 19 minutes left",
    ]
    progress.advance(100)
    assert progress.text() == "publishing, 100 %, less than a minute left"


def test_the_beginning_has_no_estimate():
    """As long as next to nothing is done, nobody knows how long it takes."""
    watch = Watch()
    progress = Progress("r1", watch, lambda: True)
    progress.begin("publishing", 1000)
    watch.seconds = 10
    assert progress.text() == "publishing, 0 %"


def test_the_log_has_a_line_a_minute(caplog):
    """Somebody who reads the log sees that the step goes on, without a line for every piece."""
    caplog.set_level("INFO")
    watch = Watch()
    progress = Progress("r1", watch, lambda: True)
    progress.begin("publishing", 100)
    for second in range(0, 181, 10):
        watch.seconds = second
        progress.advance(5)
    assert [each.progress for each in caplog.records] == [
        "publishing, 35 %, about 2 minutes left",
        "publishing, 65 %, about 1 minute left",
        "publishing, 95 %, less than a minute left",
    ]


def test_a_step_that_is_not_due_any_more_stops():
    """A release that was cancelled, or a daemon that stops, does not wait for hours of work."""
    progress = Progress("r1", Watch(), lambda: False)
    with pytest.raises(StepStoppedError):
        progress.advance(1)
