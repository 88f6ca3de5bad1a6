"""Which sandboxes are trusted, and why not. The attacks are real: with a sandbox and without."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from sandbox import doctor, machine
from sandbox.daemon.trials.capability import AttackResult, Capability
from sandbox.daemon.trials.trial import SandboxChoice, Trial, attempt
from sandbox.inside.attacks import EVERY
from sandbox.inside.selfcheck import ATTACKS
from sandbox.machine import Facts, Signs
from sandbox.spec import Backend, IsolationLevel, Network, Profile
from sandbox.state import SandboxdState, SandboxdStateCache, ask
from tests.sandbox import no_sandbox
from tests.sandbox.conftest import GROUPS, ROOT

NONE, STANDARD, STRICT, RESTRICTED = IsolationLevel
FREE = Signs()
FACTS = Facts("v2", landlock_abi=7, signs=FREE)
FORBIDDEN = "bwrap: No permissions to create new namespace"


def trial(
    level: IsolationLevel, *through: str, failure: str = "", backend: Backend = Backend.PROCESS
) -> Trial:
    """With one attack that is contained, and those that get through."""
    seen = [AttackResult("be root", level, backend, True, "nothing")]
    seen += [AttackResult(name, level, backend, False, "EINVAL") for name in through]
    choice = SandboxChoice(level, backend)
    return Trial(choice, failure=failure) if failure else Trial(choice, tuple(seen))


HOLDING = {level: trial(level) for level in IsolationLevel}
WITHOUT_NAMESPACES = [
    HOLDING[NONE],
    *(trial(level, failure=FORBIDDEN) for level in (STANDARD, STRICT, RESTRICTED)),
]


def concluded(*changed: Trial, facts: Facts = FACTS) -> Capability:
    trials = HOLDING | {one.choice.level: one for one in changed}
    return doctor.conclude(list(trials.values()), facts)


def on_degraded(*through: str, **facts: object) -> Capability:
    degraded = trial(STANDARD, *through, backend=Backend.DEGRADED)
    allowed = replace(FACTS, degraded_allowed=True, **facts)
    return doctor.conclude([*WITHOUT_NAMESPACES, degraded], allowed)


# --- from what was seen to what is served ---------------------------------------------------------
def test_where_every_wall_holds_every_level_is_served_and_nothing_is_to_be_said():
    found = concluded()
    assert (found.ceiling, found.reasons, found.fix) == (RESTRICTED, (), ())
    assert [found.refusal(level, Profile(level)) for level in IsolationLevel] == [None] * 4


@pytest.mark.parametrize("level", [NONE, STANDARD, STRICT])
def test_an_attack_that_gets_through_closes_its_level_and_no_other(level):
    found = concluded(trial(level, "mount a file system"))
    assert found.ceiling == RESTRICTED
    assert [one for one, verdict in found.levels.items() if not verdict.available] == [level]
    assert "mount a file system (EINVAL)" in (found.refusal(level, Profile(level)) or "")


def test_a_hole_in_the_strictest_level_lowers_the_ceiling_with_a_reason_and_a_fix():
    found = concluded(trial(RESTRICTED, "make a process"))
    assert found.ceiling == STRICT and "make a process" in found.reasons[0]
    assert "sandbox_doctor --json" in found.fix[0]


def test_without_namespaces_only_the_bare_level_is_left():
    found = doctor.conclude(WITHOUT_NAMESPACES, FACTS)
    assert found.ceiling == NONE and not found.serves(STANDARD)
    assert FORBIDDEN in (found.refusal(STANDARD, Profile(STANDARD)) or "")
    assert [FORBIDDEN in reason for reason in found.reasons] == [True]  # said once


def test_where_nothing_holds_there_is_no_ceiling():
    bare = trial(NONE, "be root")
    found = doctor.conclude([bare, *WITHOUT_NAMESPACES[1:]], FACTS)
    assert found.ceiling is None and not found.serves(NONE)


CAUSES = {
    "docker": (Signs(seccomp=2, confinement="docker-default", container=True), "seccomp profile"),
    "container": (Signs(container=True), "systempaths=unconfined"),
    "apparmor": (
        Signs(switches=frozenset({"kernel.apparmor_restrict_unprivileged_userns"})),
        "the rule userns",
    ),
    "none at all": (Signs(switches=frozenset({"user.max_user_namespaces"})), "sysctl -w user.max"),
    "only root": (
        Signs(switches=frozenset({"kernel.unprivileged_userns_clone"})),
        "kernel.unprivileged_userns_clone=1",
    ),
    "no seccomp": (Signs(seccomp=None), "CONFIG_SECCOMP_FILTER"),
    "unknown": (FREE, "bwrap --unshare-all"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_fix_fits_what_forbids_namespaces(cause):
    signs, fix = CAUSES[cause]
    found = doctor.conclude(WITHOUT_NAMESPACES, replace(FACTS, signs=signs))
    assert len(found.reasons) == 1 and fix in found.fix[0]


def test_a_missing_bubblewrap_is_named_before_anything_else():
    facts = replace(FACTS, bwrap_flaw="it is not installed", signs=Signs(container=True))
    found = doctor.conclude(WITHOUT_NAMESPACES, facts)
    assert found.reasons == ("There is no bubblewrap: it is not installed.",)
    assert "apt install bubblewrap" in found.fix[0]


def test_runs_of_several_organizations_that_share_a_user_lower_no_level_and_are_reported():
    found = concluded(facts=replace(FACTS, accounts_flaw="no root"))
    assert (found.ceiling, found.accounts) == (RESTRICTED, "shared")
    assert "no root" in found.reasons[0] and "as root" in found.fix[0]
    read = Capability.from_wire(json.loads(json.dumps(found.to_wire())))
    assert read.accounts_flaw == "no root"
    assert concluded().accounts == "one per template"


def test_the_doctor_reports_runs_that_give_way_by_nice_alone():
    found = concluded(facts=replace(FACTS, weighted=False))
    assert (found.ceiling, found.gives_way) == (RESTRICTED, "nice")
    assert "nice alone" in found.reasons[0] and "CPUWeight=50" in found.fix[0]
    assert concluded().gives_way == "cgroup weight"


@pytest.mark.parametrize(("writable", "fix"), [(True, "Delegate=yes"), (False, "writable-cgroups")])
def test_without_control_groups_levels_are_served_and_it_is_said(writable, fix):
    signs = replace(FREE, cgroups_writable=writable)
    found = concluded(facts=replace(FACTS, cgroup_mode="none", signs=signs))
    assert found.ceiling == RESTRICTED and not found.counted
    assert "one process only" in found.reasons[0] and fix in found.fix[0]


def test_what_lacks_beside_the_levels_is_said_too():
    found = concluded(
        facts=replace(
            FACTS, landlock_abi=0, operations_flaw="the kernel is old", egress_flaw="no socket"
        )
    )
    assert found.ceiling == RESTRICTED
    assert ["Landlock" in found.reasons[0], "not counted" in found.reasons[1]] == [True, True]
    assert not any(verdict.network for verdict in found.levels.values())


# --- the degraded backend -------------------------------------------------------------------------
def test_a_degraded_wall_that_holds_serves_standard_without_network_and_says_so_loudly():
    found = on_degraded()
    verdict = found.levels[STANDARD]
    assert found.ceiling == STANDARD and any("DEGRADED" in reason for reason in found.reasons)
    assert (verdict.available, verdict.network, verdict.backend) == (True, False, "degraded")
    assert found.placed(Profile(STANDARD)).backend == Backend.DEGRADED


def test_a_degraded_wall_refuses_what_it_cannot_give():
    found = on_degraded()
    profile = Profile(STANDARD, network=Network.HELPER)
    assert "no network" in (found.refusal(STANDARD, profile) or "")
    for level in (STRICT, RESTRICTED):
        assert found.refusal(level, Profile(level))
        chosen = Profile(level, backend=Backend.DEGRADED)
        assert "ends at Standard" in (found.refusal(level, chosen) or "")


def test_a_degraded_wall_that_leaks_serves_nothing():
    found = on_degraded("kill a process of the host")
    assert found.ceiling == NONE and found.refusal(STANDARD, Profile(STANDARD))
    assert "kill a process" in (found.backends[Backend.DEGRADED] or "")


def test_the_degraded_backend_stands_in_for_no_wall_that_could_be_made():
    degraded = trial(STANDARD, backend=Backend.DEGRADED)
    trials = [*(HOLDING | {STANDARD: trial(STANDARD, "be root")}).values(), degraded]
    found = doctor.conclude(trials, replace(FACTS, degraded_allowed=True))
    assert not found.levels[STANDARD].available


def test_backends_are_chosen_only_where_they_are():
    flaws = {Backend.CONTAINER: "no runtime is on PATH", Backend.MONTY: None}
    found = concluded(facts=replace(FACTS, backends=flaws))
    refusals = {one: found.refusal(STRICT, Profile(STRICT, backend=one)) for one in Backend}
    assert refusals[Backend.PROCESS] is None and refusals[Backend.MONTY] is None
    assert "no runtime" in (refusals[Backend.CONTAINER] or "")
    assert "ends at Standard" in (refusals[Backend.DEGRADED] or "")


# --- what is published ----------------------------------------------------------------------------
def test_a_capability_crosses_the_socket_unchanged():
    found = on_degraded(cgroup_mode="none")
    assert Capability.from_wire(json.loads(json.dumps(found.to_wire()))) == found


@pytest.mark.parametrize("change", [{"level_ceiling": "Huge"}, {"surprise": 1}, {"levels": []}])
def test_a_capability_that_cannot_be_meant_is_not_read(change):
    with pytest.raises(ValueError):
        Capability.from_wire(json.loads(json.dumps(concluded().to_wire() | change)))


def test_the_signs_of_this_machine_can_be_read():
    signs = Signs.read()
    assert signs.seccomp in {None, 0, 1, 2}
    assert signs.switches <= set(machine._CAUSE_SWITCHES)


def test_a_daemon_that_is_not_there_is_noticed_and_remembered(tmp_path):
    missing = str(tmp_path / "none")
    with pytest.raises(OSError, match="No such file"):
        ask(missing, 1)
    assert SandboxdStateCache(missing).state() is None


# --- the attacks bite -----------------------------------------------------------------------------
# What a machine may not have, or what only shows something where it does: no failure either way.
MAY_FIND_NOTHING = {
    "be root", "call the kernel by i386 numbers", "call the kernel by x32 numbers",
    "choose what the kernel runs after a crash", "count the machine's events", "dump core",
    "find descriptors nobody meant to give", "get a capability back", "hold a capability",
    "leave a process behind", "listen to the wire", "load a program into the kernel",
    "load code from a place it can write", "make a device", "open files by their handles",
    "open the host's passwords", "open the machine's memory", "open what is closed to everybody",
    "reach the hypervisor",
    "start a program from a place it can write", "stop the kernel at a page fault",
    "take a terminal", "use io_uring", "write to the system and the interpreter",
    "change the root", "exchange the root", "mount a file system", "make namespaces",
}  # fmt: skip


@pytest.fixture(scope="module")
def seen_without_sandbox(tmp_path_factory) -> list[AttackResult]:
    """Every attack on Standard, and its limits, where there is no sandbox."""
    place = tmp_path_factory.mktemp("no_sandbox")

    def run(profile, limits, body):
        return no_sandbox.run(profile, body, place)

    tried = attempt(run, replace(FACTS, cgroup_mode="v2"), SandboxChoice(STANDARD))
    assert tried.failure == ""
    return list(tried.attacks)


def test_without_a_sandbox_the_attacks_succeed(seen_without_sandbox):
    contained = {attack.name for attack in seen_without_sandbox if attack.contained}
    assert contained - MAY_FIND_NOTHING == {"take more time than allowed"}
    assert sum(not attack.contained for attack in seen_without_sandbox) >= 35


def test_without_a_sandbox_the_harm_is_seen_from_outside(seen_without_sandbox):
    seen = {attack.name: attack.seen for attack in seen_without_sandbox}
    assert seen["end the host's process"] == "it is dead"
    assert seen["change the host's file"] == "it is not as it was"
    assert seen["knock at the host's sockets"] == "abstract, path, TCP, UDP"
    assert "dropped" in seen["leave a set-id file or device behind"]
    assert "of them" in seen["outlive its run"]
    assert seen["read a file of the host"] == "the secret that lay there"


def test_every_level_is_attacked_by_at_least_twelve():
    for level in EVERY:
        assert sum(level in attack.levels for attack in ATTACKS.values()) >= 12, level


# --- this machine ---------------------------------------------------------------------------------
def test_every_attack_is_contained_here_at_every_level(daemon):
    capability = ask(daemon.path, 5).capability
    print(f"cgroup mode: {capability.cgroup_mode}", file=sys.__stderr__)
    assert [one for one in capability.attacks if not one.contained] == []
    assert {one.level for one in capability.attacks} == set(IsolationLevel)
    assert capability.ceiling == RESTRICTED


def test_a_watch_sees_the_daemon_and_its_slots(daemon):
    daemon.run("def main(p):\n    return 1")
    state = SandboxdStateCache(daemon.path).state()
    assert isinstance(state, SandboxdState)
    assert state.pid == daemon.process.pid and state.templates >= 1


def test_the_log_has_the_outcome_and_not_each_attack(daemon):
    ready = daemon.facts["ready"]
    assert ready["level_ceiling"] == "Restricted" and "attacks" not in ready


@pytest.mark.part("sandbox")
def test_the_doctor_leaves_nothing_behind(tmp_path):
    """Its bait lies where temporary files lie, and a probe ends by itself."""
    command = [sys.executable, "-m", "sandbox.daemon", "--probe"]
    command += ["--cgroup-root", f"{GROUPS}-doctor"]
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd="/", env=environment, capture_output=True, check=False)
    assert json.loads(ended.stdout)["attacks"]
    assert os.listdir(tmp_path) == []
