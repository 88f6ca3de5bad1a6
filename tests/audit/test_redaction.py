"""Secrets never reach evidence: by their key, by their look, or because the tool says so."""

import io
import json

import pytest
from django.core.management import call_command
from hypothesis import given
from hypothesis import strategies as st

from audit.actions import redactor_of
from audit.redaction import MAX_TEXT, Redactor

REDACTOR = Redactor(b"k" * 32)
WORD = "c4naryC4NARYc4nary0123456789abcdefghij"
KEYS = [
    "password", "userPassword", "db-password", "passphrase", "client_secret", "clientSecret",
    "api_key", "apiKey", "API-KEY", "x-api-key", "access_key", "secretAccessKey", "private_key",
    "account_key", "signing-key", "encryptionKey", "Authorization", "authorization-header",
    "cookie", "Set-Cookie", "credentials", "bearer", "refresh_token", "idToken", "session_id",
    "pin", "otp", "cvv", "ssn", "connectionString", "dsn", "tokens", "accessTokens", "password1",
    "password_2", "passwords",
]  # fmt: skip
LOOKS = [
    f"tcr_abcdefgh_{WORD}",
    f"ghp_{WORD}",
    f"github_pat_{WORD}",
    f"glpat-{WORD}",
    f"xoxb-{WORD}",
    f"sk-{WORD}",
    "sk_live_c4naryC4NARYc4nary",
    "AKIAC4NARYC4NARYC4NA",
    f"AIza{WORD[:35]}",
    f"SG.{WORD}.{WORD}",
    f"npm_{WORD}",
    f"hf_{WORD}",
    f"eyJhbGciOiJIUzI1.{WORD}.{WORD}",
    f"Bearer {WORD}",
    "Authorization: Basic YzRuYXJ5OmM0bmFyeTEyMw==",
    f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n-----END RSA PRIVATE KEY-----",
    f"postgresql://user:{WORD}@db.example/x",
    f"https://hooks.slack.com/services/T0/{WORD}",
    f"password={WORD}",
    f"password1={WORD}",
    f"token={WORD}",
    f"eyJhbGciOiJIUzI1.{WORD}",
    f'{{"api_key": "{WORD}"}}',
    "4111 1111 1111 1111",
    "5500-0000-0000-0004",
    "378282246310005",
]
SECRETS = ["c4nary", "C4NARY", "YzRuYXJ5", "4111 1111", "5500-0000", "378282246310005"]


def clean_of_secrets(value):
    text = json.dumps(value)
    return not [secret for secret in SECRETS if secret in text] and "[redacted " in text


@pytest.mark.parametrize("key", KEYS)
def test_a_member_of_a_secret_name_is_taken_out(key):
    assert clean_of_secrets(REDACTOR.clean({"outer": [{key: WORD}]}))


@pytest.mark.parametrize("text", LOOKS)
def test_what_looks_like_a_secret_is_taken_out_of_any_text(text):
    assert clean_of_secrets(REDACTOR.clean({"note": f"it says {text} there", "list": [text]}))


@pytest.mark.parametrize("text", LOOKS)
def test_a_key_that_is_a_secret_itself_is_taken_out(text):
    assert clean_of_secrets(REDACTOR.clean({text: 1}))


ORDINARY = [
    "The token limit is 4096 tokens, and the secretary keeps them.",
    "4111 1111 1111 1112",  # its check digit is wrong
    "2026-01-31T12:00:00.123456Z",
    "01a20276-dedb-7468-8896-38eb9a1ac85b",
    "https://example.org:8080/path?page=2",
    "sha256:8eb7f7c8739f476ba471d3d38f82bb7276cb710d280b29913891c410028ce572",
    "basic training is required",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text):
    assert REDACTOR.clean({"note": text}) == {"note": text}


def test_what_a_tool_calls_sensitive_is_taken_out_at_any_depth():
    payload = {"parameters": {"diagnosis": "c4nary", "deep": [{"diagnosis": {"a": "c4nary"}}]}}
    cleaned = REDACTOR.clean(payload, frozenset({"diagnosis"}))
    assert clean_of_secrets(cleaned)
    assert REDACTOR.clean(payload) == payload


def test_a_guessed_secret_can_be_matched_only_with_the_same_key():
    shown = REDACTOR.clean({"password": WORD})["password"]
    assert shown == REDACTOR.mark(WORD)
    assert shown != Redactor(b"o" * 32).mark(WORD)


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner)
       | st.dictionaries(st.text(), inner), max_leaves=8))  # fmt: skip
def test_whatever_it_is_given_it_gives_json_back(value):
    json.dumps(REDACTOR.clean(value))


@pytest.mark.parametrize("part", ["password=", "://a:", "4" * 12 + " ", "basic ", "eyJ"])
def test_a_text_of_almost_secrets_is_cleaned_in_linear_time(part):
    """The square of its length, 10^13 steps, would not end before pytest's timeout."""
    assert REDACTOR.clean({"text": part * 1_000_000})["text"]


def test_a_command_tells_the_mark_of_a_secret_and_hears_it_from_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{WORD}\n"))
    out = io.StringIO()
    call_command("audit_mark", organization="here", stdout=out)
    assert out.getvalue().strip() == redactor_of("here").mark(WORD)


@pytest.mark.parametrize("number", [4111111111111111, 5500000000000004, 378282246310005])
def test_the_number_of_a_card_is_taken_out_where_it_is_a_number_too(number):
    cleaned = REDACTOR.clean({"card": number, "list": [number]})
    assert str(number) not in json.dumps(cleaned)
    assert cleaned["list"] == [REDACTOR.mark(str(number))]


@pytest.mark.parametrize(
    "counted", [{"max_tokens": 4096}, {"tokens": 12}, {"token_count": 7}, {"total_tokens": 0.5},
                {"moment_us": 1767225600000000}, {"number": 4111111111111112}, {"bytes": 10**30}],
    ids=str,
)  # fmt: skip
def test_counts_and_times_stay_numbers(counted):
    assert REDACTOR.clean(counted) == counted


@pytest.mark.part("matrices", but_each=5)
@pytest.mark.parametrize("text", LOOKS)
def test_a_secret_on_the_cut_is_taken_out_whole(text):
    for before in range(MAX_TEXT - len(text) - 2, MAX_TEXT):
        filled = ("x " * MAX_TEXT)[: before - 1] + " " + text + " tail" * 500
        assert "c4nary" not in REDACTOR.clean(filled).lower(), before
        assert "4111 11" not in REDACTOR.clean(filled), before


@pytest.mark.part("generated")
def test_a_text_within_a_truncated_list_is_covered_by_the_hash_of_the_list():
    cleaned = REDACTOR.clean([["x" * 9_000] * 200] * 200)
    assert json.dumps(cleaned).count("[whole ") == 1
