"""License files: only what is signed counts."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import licenses
from tools.definitions.licenses import (
    MOST_BYTES,
    BadSignature,
    LicenseState,
    grace_end,
    license_state,
    read_license,
)
from tools.errors import Malformed

FILE = licenses.license_file("acme", "Teams", issued_at="2026-01-01T00:00:00Z")
calmly = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def read(raw, keys=(licenses.PUBLIC,)):
    return read_license(raw, keys)[0]


def code(raw, keys=(licenses.PUBLIC,)):
    with pytest.raises(Malformed) as caught:
        read_license(raw, keys)
    assert len(caught.value.message) > 20
    return caught.value.code


def changed(**fields):
    """Correctly signed; only its content is invalid."""
    return rfc8785.dumps(licenses.sign_license(licenses.license_fields("acme") | fields))


def test_a_licence_says_what_was_signed():
    read_back = read(FILE)
    assert (read_back.organization, read_back.tier, read_back.grace_days) == ("acme", "Teams", 14)
    assert read_back.issued_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_spaces_and_the_order_of_keys_do_not_matter():
    assert read(licenses.indented(json.loads(FILE))) == read(FILE)


def test_any_of_the_trusted_keys_may_have_signed():
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    assert read(FILE, [other, licenses.PUBLIC]).id == "L-1"


@calmly
@given(at=st.integers(0, len(FILE) - 1), byte=st.integers(0, 255))
def test_a_change_of_any_byte_is_refused(at, byte):
    raw = FILE[:at] + bytes([byte]) + FILE[at + 1 :]
    if raw != FILE:
        code(raw)


@calmly
@given(at=st.integers(0, len(FILE) - 1))
def test_a_part_of_a_file_is_refused(at):
    assert code(FILE[:at]) == "license_malformed"


@calmly
@given(st.binary(max_size=200))
def test_no_bytes_are_a_fault_of_ours(raw):
    code(raw)


ODD = st.sampled_from(
    [None, True, 0, -1, 2**53, 2**60, 1.5, 1e300, "", "\x00", "\ud800", "é", [], [[]], {}, {"a": 1}]
)


@calmly
@given(st.dictionaries(st.sampled_from(["license", "key_id", "signature", "x"]), ODD))
def test_no_document_is_a_fault_of_ours(document):
    code(json.dumps(document).encode())


@calmly
@given(st.sampled_from([*licenses.license_fields("a")]), ODD)
def test_no_field_that_was_signed_is_a_fault_of_ours(field, value):
    try:
        raw = changed(**{field: value})
    except (Malformed, rfc8785.CanonicalizationError):
        return
    try:
        read(raw)
    except Malformed:
        pass


def test_a_key_that_is_not_trusted_is_named():
    stranger = licenses.sign_license(licenses.license_fields("acme"), Ed25519PrivateKey.generate())
    with pytest.raises(BadSignature, match=stranger["key_id"]) as caught:
        read(rfc8785.dumps(stranger))
    assert caught.value.code == "license_key_unknown"


def test_without_trusted_keys_nothing_is_installed_and_the_setting_is_named():
    with pytest.raises(Malformed, match="LICENSE_KEYS") as caught:
        read(FILE, [])
    assert caught.value.code == "license_keys_missing"


def test_a_signature_made_for_another_purpose_is_none():
    said = licenses.license_fields("acme")
    document = licenses.sign_license(said)
    bare = licenses.KEY.sign(rfc8785.dumps(said))
    document["signature"] = base64.b64encode(bare).decode()
    assert code(rfc8785.dumps(document)) == "license_signature_invalid"


def test_a_licence_may_never_end():
    assert read(changed(expires_at=None)).expires_at is None


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""}, {"id": "a b"}, {"id": 1}, {"id": "x" * 101}, {"organization": "Acme"},
        {"organization": None}, {"tier": ""}, {"tier": "x" * 61}, {"tier": ["Teams"]},
        {"issued_at": "yesterday"}, {"issued_at": "2026-01-01"}, {"issued_at": 1767225600},
        {"issued_at": "2026-13-01T00:00:00Z"}, {"issued_at": "2026-01-01T00:00:00"},
        {"issued_at": "0001-01-01T00:00:00+23:59"}, {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": ""}, {"grace_days": -1}, {"grace_days": 367}, {"grace_days": True},
        {"grace_days": 1.5}, {"grace_days": "14"}, {"limits": {}}, {"x": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_signed_licence_that_says_something_odd_is_refused(fields):
    assert code(changed(**fields)) == "license_malformed"


def test_a_licence_that_says_too_little_is_refused():
    said = licenses.license_fields("acme")
    del said["grace_days"]
    assert code(rfc8785.dumps(licenses.sign_license(said))) == "license_malformed"


def test_a_file_that_is_too_long_is_not_read():
    assert code(FILE + b" " * MOST_BYTES) == "license_malformed"


@pytest.mark.parametrize(
    ("days_left", "state"),
    [
        (31, LicenseState.VALID), (30, LicenseState.EXPIRING), (0, LicenseState.EXPIRING),
        (-0.001, LicenseState.GRACE), (-14, LicenseState.GRACE), (-14.001, LicenseState.EXPIRED),
    ],
)  # fmt: skip
def test_a_licence_stands_by_the_clock(days_left, state):
    assert license_state(NOW + timedelta(days=days_left), 14, NOW) == state


def test_a_licence_without_an_end_is_valid():
    assert license_state(None, 0, NOW) == LicenseState.VALID


def test_days_of_grace_beyond_the_calendar_end_with_it():
    last = datetime(9999, 12, 31, tzinfo=UTC)
    assert grace_end(last, 366) > last
