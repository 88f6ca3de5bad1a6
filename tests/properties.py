"""How many examples a costly property has: few in `make test`, all of them in a part."""

import pytest


def examples(few: int, many: int) -> pytest.MarkDecorator:
    """The parameter `max_examples`; `many` is for the part `exploring`."""
    exploring = pytest.param(many, marks=pytest.mark.part("exploring"))
    return pytest.mark.parametrize("max_examples", [few, exploring])
