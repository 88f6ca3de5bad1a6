"""Credentials that an upstream returns are masked, in every encoding."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from tools.catalog.mcp.mcp_values import CREDENTIAL_MASK, Mask

SECRET = 'Bearer t0ken/of+"mine"&100% <x>'
PART = SECRET.removeprefix("Bearer ")
BASIC = "Basic " + base64.b64encode(b"someone:s3cret-word").decode()

FORMS = {
    "as it was sent": SECRET,
    "without its scheme": PART,
    "in capitals": PART.upper(),
    "escaped": quote(PART, safe=""),
    "escaped but for slashes": quote(PART),
    "escaped for a form": quote_plus(PART),
    "escaped whole": "".join(f"%{byte:02x}" for byte in PART.encode()),
    "as HTML": html.escape(PART),
    "as JSON": json.dumps(PART)[1:-1],
    "as hexadecimals": PART.encode().hex(),
    "base64": base64.b64encode(PART.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_credential_is_taken_out_in_every_common_form(form):
    masked = Mask([SECRET]).text(f"before {form} after")
    assert masked.startswith("before ") and masked.endswith(" after") and CREDENTIAL_MASK in masked
    assert "t0ken" not in masked.lower()


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "Authorization: "])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_a_text_around_it_hides_nothing(before, encode):
    masked = Mask([SECRET]).text(encode(f"{before}{SECRET}!".encode()).decode())
    rest = masked.replace(CREDENTIAL_MASK, "")
    assert CREDENTIAL_MASK in masked and len(rest) <= len(encode(f"{before}!".encode())) + 4


def test_what_basic_holds_is_taken_out_too():
    mask = Mask([BASIC])
    assert (
        mask.text("the password s3cret-word of someone")
        == f"the password {CREDENTIAL_MASK} of someone"
    )
    assert mask.text("someone:s3cret-word") == CREDENTIAL_MASK


def test_keys_items_and_numbers_of_a_value_are_looked_at():
    value = {"123456789": [123456789, {"x": "<123456789>"}, True, None, 1.5]}
    assert Mask(["123456789"]).value(value) == {
        CREDENTIAL_MASK: [CREDENTIAL_MASK, {"x": f"<{CREDENTIAL_MASK}>"}, True, None, 1.5]
    }


def test_without_a_credential_nothing_is_changed():
    mask = Mask([])
    assert (mask.text("x"), mask.value({"a": [1]}), mask.longest) == ("x", {"a": [1]}, 0)


def test_short_words_of_a_value_are_not_looked_for():
    assert Mask(["Basic eDp5"]).text("an x and a y") == "an x and a y"
