import pytest

from tests.faults import ledger


@pytest.fixture
def book(tmp_path):
    with ledger.run_ledger(tmp_path / "effects") as one:
        yield one
