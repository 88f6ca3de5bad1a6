import pytest

from tests.stubs import llm

KEY = "sk-secret-of-the-operator"


@pytest.fixture
def model(settings):
    """A model endpoint on loopback."""
    with llm.serving() as endpoint:
        settings.LLM_BASE_URL, settings.LLM_MODEL = endpoint.url, "small"
        settings.LLM_API_KEY, settings.LLM_PRICES = KEY, {}
        yield endpoint
