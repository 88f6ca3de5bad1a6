"""What tests of the API share."""

import pytest

from tests.tools.api.document import MadeOnce


@pytest.fixture
def document_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that ask for the API's document many times, but not for what it says."""
    monkeypatch.setattr("tools.api.documentation.openapi.SchemaGenerator", MadeOnce)
