"""Progress output is streamed while the call runs."""

import pytest

from tests import factories
from tools.execution import events
from tools.execution.events import LONGEST_MESSAGE, ProgressWriter

pytestmark = pytest.mark.usefixtures("committed")


@pytest.fixture
def running(agent, organization):
    factories.tool(organization)
    return factories.execution(agent)


def words(execution):
    return [event.message for event in execution.events.order_by("sequence")]


def test_the_first_words_reach_the_reader_at_once(running):
    ProgressWriter(running.pk)("first")
    assert words(running) == ["first"]


def test_words_that_come_fast_are_joined_and_none_is_lost(running):
    teller = ProgressWriter(running.pk)
    for word in ("a", "b", "c"):
        teller(word)
    teller.flush()
    assert words(running) == ["a", "bc"]


def test_what_a_table_cannot_hold_is_written_as_what_it_can(running):
    teller = ProgressWriter(running.pk)
    teller("a\x00\ud800")
    assert words(running) == ["a\ufffd?"]


def test_a_talkative_run_fills_no_table(running, monkeypatch):
    monkeypatch.setattr(events, "MOST_EVENTS", 3)
    teller = ProgressWriter(running.pk)
    for _ in range(10):
        teller("x" * LONGEST_MESSAGE)
    teller.flush()
    assert [len(one) for one in words(running)] == [LONGEST_MESSAGE] * 3


def test_progress_beyond_the_most_events_is_not_kept(running, monkeypatch):
    monkeypatch.setattr(events, "MOST_EVENTS", 1)
    teller = ProgressWriter(running.pk)
    for _ in range(10):
        teller("x" * LONGEST_MESSAGE)
    assert teller._waiting == ""
