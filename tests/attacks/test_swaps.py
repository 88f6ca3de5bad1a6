"""A place that a run may write is exchanged for a link while another run is being given it."""

import os
import select
import threading

import pytest

from sandbox.errors import ErrorCode
from sandbox.spec import CodeSource, IsolationLevel, Mount, Profile, SandboxResult, SandboxSpec
from tests.attacks.attack import USUAL
from tests.attacks.kit import Parameters, call, report_ready, texts_of
from tests.attacks.siege import Siege, output_text
from tests.attacks.sources import source_of
from tests.conditions import LIMIT_S
from tests.sandbox.run_observer import wait_readable

_LAUNCHES = 12


def swaps_a_directory(p: Parameters) -> object:
    """Once; what stands there afterwards is the link."""
    os.makedirs(f"{p['arena']}/given/inner")
    os.rename(f"{p['arena']}/given", f"{p['arena']}/was")
    os.symlink(p["base"], f"{p['arena']}/given")
    return []


def swaps_without_pause(p: Parameters) -> object:
    """In one step each time, so that the name is never missing."""
    place, link = f"{p['arena']}/given".encode(), f"{p['arena']}/link".encode()
    os.mkdir(place)
    os.symlink(p["base"], link)
    answer = os.open(f"{p['arena']}/answer", os.O_RDONLY | os.O_NONBLOCK)
    report_ready(p)
    while not select.select([answer], [], [], 0)[0]:
        call("renameat2", -100, place, -100, link, 2)
    return []


def takes_what_it_was_given(p: Parameters) -> object:
    return [os.listdir("/given"), texts_of(["/given/secret", "/given/inner/secret"])]


def run_with(siege: Siege, source: str, whose: str) -> SandboxResult:
    """A first run of its organization: the place is opened for it now."""
    profile = Profile(IsolationLevel.STANDARD, (Mount(source, "/given"),))
    program = CodeSource(source_of(takes_what_it_was_given))
    return siege.client.run(SandboxSpec(whose, profile, USUAL, program, {}))


@pytest.mark.parametrize("place", ["given", "given/gift"])
def test_a_link_in_place_of_a_directory_is_not_followed(siege: Siege, place: str) -> None:
    siege.run_body(swaps_a_directory, IsolationLevel.STANDARD)
    try:
        result = run_with(siege, f"{siege.scene.arena}/{place}", "swapped")
    finally:
        siege.scene.traps()
    assert result.error_code == ErrorCode.LAUNCH_FAILED
    assert siege.scene.secret not in output_text(result)


def test_no_moment_is_left_between_the_look_and_the_mount(siege: Siege) -> None:
    results: list[SandboxResult] = []
    with siege.scene.meeting() as (ready, answer):
        swapping = threading.Thread(
            target=siege.run_body, args=(swaps_without_pause, IsolationLevel.STANDARD)
        )
        swapping.start()
        assert wait_readable(ready)
        for number in range(_LAUNCHES):
            results.append(run_with(siege, f"{siege.scene.arena}/given", f"swap-{number}"))
        os.write(answer, b"x")
        swapping.join(LIMIT_S)
    assert not [one for one in results if siege.scene.secret in output_text(one)]
    assert not [one for one in results if "arena" in str(one.output)]
