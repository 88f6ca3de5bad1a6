"""Fixtures that the tests of the API share."""

import pytest

from tests.tools.api.document import MadeOnce


@pytest.fixture
def document_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that request the API document many times without checking its content."""
    monkeypatch.setattr("tools.api.documentation.SchemaGenerator", MadeOnce)
