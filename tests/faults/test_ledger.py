import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults import ledger


def post(book, body):
    with urllib.request.urlopen(urllib.request.Request(book.url, data=body)) as answer:
        return answer.status


def line(key):
    return json.dumps({"key": key, "run": "r", "what": ledger.EFFECT}).encode()


def test_what_was_answered_is_on_the_disk(book):
    assert post(book, line("k")) == 204
    (effect,) = book.effects()
    assert (effect.key, effect.run, effect.what) == ("k", "r", ledger.EFFECT)


def test_effects_that_come_together_are_all_kept_whole(book):
    with ThreadPoolExecutor(8) as several:
        list(several.map(lambda n: post(book, line(str(n))), range(100)))
    assert {effect.key for effect in book.effects()} == {str(n) for n in range(100)}


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"key": "k"}'])
def test_what_is_no_effect_is_refused_and_not_kept(book, body):
    with pytest.raises(urllib.error.HTTPError):
        post(book, body)
    assert book.effects() == []
