"""The sandbox profile of `web_fetch` in a real sandboxd mounts all the tool needs, at every
level."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sandbox.spec import IsolationLevel, Limits, Preloaded, SandboxSpec
from tests.sandbox.conftest import GROUPS, Daemon, remove_groups, short_directory
from tools.builtin.manifest import ISOLATED

__all__ = ["short_directory"]
_OWN_GROUPS = f"web-{GROUPS}"  # another sandboxd may run for the whole session


@pytest.fixture(scope="module")
def daemon(short_directory: str) -> Iterator[Daemon]:
    one = Daemon(short_directory, _OWN_GROUPS)
    one.start()
    yield one
    one.stop()
    remove_groups(_OWN_GROUPS)


@pytest.mark.part("sandbox", but_each=4)
@pytest.mark.parametrize("level", IsolationLevel)
def test_the_tool_is_ready_with_what_its_profile_mounts(daemon, level):
    builtin = ISOLATED["web_fetch"]
    spec = SandboxSpec(
        organization="acme",
        profile=replace(builtin.profile("acme"), level=level),
        limits=Limits(),
        program=Preloaded(builtin.module),
        parameters={"url": "http://good.example/", "format": "text", "max_bytes": 1_000},
    )
    result = daemon.client.run(spec)
    assert (result.outcome, result.error_code) == ("FAILED", "NETWORK_OFF"), result.error_message
    assert (result.stdout, result.stderr) == ("", "")
