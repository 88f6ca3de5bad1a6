"""Costly properties: how many examples they have, few in `make test` and all of them in a part."""

import pytest
from hypothesis import HealthCheck, Phase, settings


def examples(few: int, many: int) -> pytest.MarkDecorator:
    """The parameter `max_examples`; `many` is for the part `exploring`."""
    exploring = pytest.param(many, marks=pytest.mark.part("exploring"))
    return pytest.mark.parametrize("max_examples", [few, exploring])


def of_machine(max_examples: int, steps: int) -> settings:
    """Of a state machine over the database. An example takes a second: a failure is read as it was
    found, for to make it smaller would take until the test is cut off, and tell nothing."""
    return settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
        phases=[Phase.explicit, Phase.generate],
    )
