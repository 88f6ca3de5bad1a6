import itertools
import json
import math

import pytest

from sandbox.errors import SpecInvalid
from sandbox.levels import at_least
from sandbox.spec import (
    IsolationLevel,
    Limits,
    Mount,
    Profile,
    ResourceUsage,
    RunOutcome,
    SandboxResult,
)

PROFILE = Profile(
    IsolationLevel.STANDARD, (Mount("/a", "/b", True),), ("/lib/x",), (("mine", "x = 1"),)
)


def test_a_profile_and_limits_survive_the_wire():
    limits = Limits(wall_s=1.5)
    assert Profile.from_wire(json.loads(json.dumps(PROFILE.to_wire()))) == PROFILE
    assert Limits.from_wire(json.loads(json.dumps(limits.to_wire()))) == limits


def test_a_result_survives_the_wire():
    result = SandboxResult(RunOutcome.FAILED, None, "X_Y", "why", "o", "e", ResourceUsage(1), "7")
    assert SandboxResult.from_wire(json.loads(json.dumps(result.to_wire()))) == result


def test_the_digest_of_a_profile_depends_on_everything_in_it():
    others = [
        Profile(IsolationLevel.STRICT, PROFILE.mounts, PROFILE.libraries, PROFILE.preload),
        Profile(PROFILE.level, (), PROFILE.libraries, PROFILE.preload),
        Profile(PROFILE.level, PROFILE.mounts, (), PROFILE.preload),
        Profile(PROFILE.level, PROFILE.mounts, PROFILE.libraries, (("mine", "x = 2"),)),
    ]
    assert len({PROFILE.digest, *(one.digest for one in others)}) == 5
    assert Profile.from_wire(json.loads(json.dumps(PROFILE.to_wire()))).digest == PROFILE.digest


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1}, {"wall_s": "1"}, {"wall_s": True}, {"processes": 1.5}, {"wall_s": 0},
        {"memory_bytes": -1}, {"wall_s": math.inf}, {"cpu_s": math.nan}, {"tmp_bytes": None},
    ],
)  # fmt: skip
def test_limits_are_read_strictly(change):
    with pytest.raises(SpecInvalid):
        Limits.from_wire(Limits().to_wire() | change)


@pytest.mark.parametrize("path", ["", "a", "/a/../b", "/a//b", "/a/.", "/a/", "/a\0"])
def test_paths_must_be_plain_and_absolute(path):
    with pytest.raises(SpecInvalid):
        Mount(path, "/b")
    with pytest.raises(SpecInvalid):
        Profile(IsolationLevel.STANDARD, libraries=(path,))


@pytest.mark.parametrize(
    ("source", "target"),
    [("/proc/1", "/x"), ("/sys", "/x"), ("/dev/vda", "/x"), ("/x", "/toolcrib"), ("/x", "/usr/y"),
     ("/x", "/tmp"), ("/x", "/python/lib"), ("/", "/x"), ("/x", "/")],
)  # fmt: skip
def test_mounts_stay_clear_of_the_system_and_of_our_own_places(source, target):
    with pytest.raises(SpecInvalid):
        Mount(source, target)


@pytest.mark.parametrize("name", ["json", "toolcrib", "sandbox", "a.b", "A", "", "../x"])
def test_a_preloaded_module_may_not_take_anothers_name(name):
    with pytest.raises(SpecInvalid):
        Profile(IsolationLevel.STANDARD, preload=((name, ""),))


def test_each_level_is_stronger_than_the_one_before():
    levels = list(IsolationLevel)
    for weaker, stronger in itertools.pairwise(levels):
        assert at_least(stronger, weaker) and not at_least(weaker, stronger)
