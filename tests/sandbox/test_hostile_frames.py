"""The tool shares a process with the code that answers for it: every byte of it may be a lie."""

import pytest

from sandbox import untrusted_json
from sandbox.spec import RunOutcome

FORGE = """
import os, struct
def main(p):
    frame = bytes.fromhex(p["frame"])
    for fd in range(3, 64):
        try: os.write(fd, frame)
        except OSError: continue
    os._exit(0)
"""


def framed(payload: bytes) -> dict[str, str]:
    return {"frame": (len(payload).to_bytes(4, "big") + payload).hex()}


def test_a_forged_good_frame_is_no_more_than_a_result_of_that_tool(run):
    result = run(FORGE, framed(b'R{"forged":true}'))
    assert (result.outcome, result.output) == (RunOutcome.SUCCESS, {"forged": True})
    assert run("def main(p):\n    return 1").output == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"R", b"X1", b"R{", b"R1 2", b'R"\xff"', b"RNaN", b"R[Infinity]", b"R-Infinity",
        b'R{"a":1,"a":2}', b"R" + b"[" * 100_000, b"R" + b"[" * 65 + b"]" * 65,
        b"R1e999", b"R" + b"9" * 301, b"R" + b"9" * 5000, b'R"\\ud800"', b'R"\\u0000"',
        b'R{"\\u0000":1}', b'R"\x00"', b"E1", b"E{}", b'E{"code":"no","message":""}',
        b'E{"code":"TIMEOUT"}', b'E{"code":["TIMEOUT"],"message":"x"}', b"\x80\x04K\x01.",
    ],
)  # fmt: skip
def test_an_unclean_frame_is_an_invalid_result(run, payload):
    result = run(FORGE, framed(payload))
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "INVALID_RESULT")


def test_a_frame_that_announces_too_much_is_not_read(run):
    result = run(FORGE, {"frame": "ffffffff"})
    assert result.error_code == "OUTPUT_LIMIT"


def test_half_a_frame_is_no_result(run):
    assert run(FORGE, {"frame": "00000010" + b"R{".hex()}).error_code == "EXITED"


def test_a_forged_error_cannot_change_the_outcome_or_grow(run):
    result = run(FORGE, framed(b'E{"code":"SUCCESS","message":"' + b"x" * 5000 + b'"}'))
    assert (result.outcome, result.error_code) == (RunOutcome.FAILED, "SUCCESS")
    assert len(result.error_message) <= 800


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        ("os.closerange(0, 256)\n    while True: pass", "EXITED"),
        ("while True: os.write(3, b'\\0\\0\\0\\1')", "INVALID_RESULT"),
    ],
)
def test_closing_every_descriptor_and_endless_bytes_end_the_run(run, deed, code):
    assert run(f"import os\ndef main(p):\n    {deed}", wall_s=10).error_code == code


def test_depth_is_allowed_up_to_64_and_brackets_in_texts_do_not_count():
    deep = b"[" * 64 + b"]" * 64
    assert untrusted_json.parse(deep) is not None
    assert untrusted_json.parse(b'["' + b"[{" * 500 + b'\\"[", "\\\\"]')
    with pytest.raises(untrusted_json.HostileJson):
        untrusted_json.parse(b"[" + deep + b"]")


@pytest.mark.parametrize("raw", [b'"\\\\u0000"', b'"\\\\ud800"', b'"\\ud83d\\ude00"', b"[1.5,-3]"])
def test_what_only_looks_odd_is_read(raw):
    assert untrusted_json.parse(raw) is not None


@pytest.mark.parametrize("raw", [b'"' + b'\\"' * 500_000, b'["a", "' + b"\\\\" * 500_000, b'"\\'])
def test_a_text_without_an_end_is_searched_once(raw):
    with pytest.raises(untrusted_json.HostileJson):
        untrusted_json.parse(raw)
