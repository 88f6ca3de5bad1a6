"""`LICENSE_KEYS`: keys, or a failure that says which of them is none."""

import pytest

from config import env

KEY = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="


def test_without_the_variable_no_key_is_trusted(monkeypatch):
    monkeypatch.delenv("LICENSE_KEYS", raising=False)
    assert env.env_keys("LICENSE_KEYS") == []


@pytest.mark.parametrize("text", [f"{KEY},{KEY}", f"{KEY}\n{KEY}\n", f" {KEY} , {KEY} "])
def test_keys_stand_beside_or_below_each_other(monkeypatch, text):
    monkeypatch.setenv("LICENSE_KEYS", text)
    keys = env.env_keys("LICENSE_KEYS")
    assert len(keys) == 2 and {len(key) for key in keys} == {32}


def test_keys_may_stand_in_a_file(monkeypatch, tmp_path):
    place = tmp_path / "keys"
    place.write_text(f"{KEY}\n")
    monkeypatch.setenv("LICENSE_KEYS_FILE", str(place))
    assert len(env.env_keys("LICENSE_KEYS")) == 1


@pytest.mark.parametrize("text", ["x", "AAAA", KEY[:-1], f"{KEY},nonsense", "é"])
def test_what_is_no_key_is_a_loud_failure(monkeypatch, text):
    monkeypatch.setenv("LICENSE_KEYS", text)
    with pytest.raises(env.BadSetting, match="LICENSE_KEYS"):
        env.env_keys("LICENSE_KEYS")
