"""Runs code in the sandbox, and derives the sandbox of each run: isolation level, mounts, network,
limits, and allowed hosts."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sandbox.egress.rules.egress_policy import EgressPolicy
from sandbox.errors import ErrorCode
from sandbox.spec import (
    Backend,
    CodeSource,
    IsolationLevel,
    Limits,
    Network,
    Profile,
    Program,
    RunOutcome,
    SandboxResult,
    SandboxSpec,
)
from tools.builtin.manifest import Isolated
from tools.catalog.sandbox.hosts import Header, Item, credentials_in, rules_of
from tools.catalog.signatures.sealed_texts import UnreadableSealedText
from tools.catalog.snapshot import CatalogProfile, Snapshot
from tools.runners.tool_runs import ToolRun, sandbox_client


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The part of a spec that does not depend on the program. `hosts` are those that the network
    reaches."""

    profile: Profile
    limits: Limits
    hosts: tuple[Item, ...] = ()


class CredentialUnavailable(Exception):
    """A credential is not there, or cannot be read. The text names it, never its value."""


def code_surroundings(run: ToolRun) -> Surroundings:
    """A tool of the organization's own: nothing but what its sandbox profile allows."""
    own = run.profile
    profile = Profile(
        level=run.level,
        mounts=own.mounts if own else (),
        backend=own.backend if own else Backend.PROCESS,
        network=_network(run.level, own),
        language=run.definition.language,
    )
    return Surroundings(profile, _limits(run), own.allowed_hosts if own else ())


def builtin_surroundings(run: ToolRun, builtin: Isolated) -> Surroundings:
    """A tool of the product: it keeps its own files; a sandbox profile sets limits and hosts."""
    own = run.profile
    profile = replace(
        builtin.profile(run.organization),
        level=run.level,
        backend=own.backend if own else Backend.PROCESS,
        network=request_network(run) if builtin.network else Network.NONE,
    )
    return Surroundings(profile, _workspace_limits(run), allowed_hosts(run))


def allowed_hosts(run: ToolRun) -> tuple[Item, ...]:
    """Of a tool of the product, or of one that is a request: those of its sandbox profile, or of
    the organization."""
    return run.profile.allowed_hosts if run.profile else run.snapshot.allowed_hosts


def request_network(run: ToolRun) -> Network:
    """Of the same tools."""
    if run.profile is not None:
        return Network.NONE if _network(run.level, run.profile) == Network.NONE else Network.HELPER
    return Network.NONE if run.level == IsolationLevel.RESTRICTED else Network.HELPER


def run_program(run: ToolRun, program: Program, around: Surroundings) -> SandboxResult:
    """Runs the program in the sandbox; a SANDBOX_ERROR where a credential is missing."""
    try:
        egress = egress_policy(around, run.snapshot)
    except CredentialUnavailable as error:
        return missing_credential_result(error)
    spec = SandboxSpec(
        organization=run.organization,
        profile=around.profile,
        limits=around.limits,
        program=program,
        parameters=run.arguments,
        egress=egress,
    )
    return sandbox_client().run(spec, cancelled=run.stop, until=run.until)


def egress_policy(around: Surroundings, snapshot: Snapshot) -> EgressPolicy:
    """Without network there is no rule, and no credential is decrypted. Raises
    `CredentialUnavailable`."""
    if around.profile.network == Network.NONE:
        return EgressPolicy()
    headers = credential_headers(credentials_in(around.hosts), snapshot)
    return EgressPolicy(rules_of(around.hosts, headers))


def credential_headers(names: Iterable[str], snapshot: Snapshot) -> dict[str, Header]:
    """The header of each. Raises `CredentialUnavailable`."""
    headers = {}
    for name in names:
        try:
            headers[name] = snapshot.credentials[name].opened()
        except (KeyError, UnreadableSealedText):
            raise CredentialUnavailable(
                f"the credential {name} cannot be read; set it again"
            ) from None
    return headers


def missing_credential_result(error: CredentialUnavailable) -> SandboxResult:
    return SandboxResult(
        RunOutcome.SANDBOX_ERROR,
        error_code=ErrorCode.EGRESS_UNAVAILABLE,
        error_message=str(error),
    )


def run_code(job: ToolRun) -> SandboxResult:
    implementation = job.definition.raw["implementation"]
    program = CodeSource(implementation["source"], implementation["entry_point"])
    return run_program(job, program, code_surroundings(job))


def _network(level: IsolationLevel, own: CatalogProfile | None) -> Network:
    """Policy refuses a tool that needs a network at this level; here it just has none."""
    if own is None or not own.allow_network:
        return Network.NONE
    if level == IsolationLevel.RESTRICTED and not own.network_when_restricted:
        return Network.NONE
    return Network.PROXY if own.proxy else Network.HELPER


def _limits(run: ToolRun) -> Limits:
    """Of the sandbox profile where there is one; time and output are the definition's."""
    limits = Limits(wall_s=run.timeout_s, output_bytes=run.definition.max_output_bytes)
    own = run.profile
    if own is None:
        return limits
    return replace(
        limits,
        memory_bytes=own.memory_bytes,
        cpu_s=own.cpu_s,
        processes=own.processes or limits.processes,
        tmp_bytes=own.disk_bytes,
        tmp_inodes=own.files,
        shared_bytes=own.quota_bytes,
        shared_files=own.quota_files,
    )


def _workspace_limits(run: ToolRun) -> Limits:
    """Built-in tools keep the workspace's quota themselves, and say how much is left. The limit
    here leaves room for temporary files that they write before they replace a file."""
    limits, workspace = _limits(run), run.snapshot.workspace
    return replace(
        limits,
        shared_bytes=max(2 * workspace.bytes, Limits.shared_bytes),
        shared_files=max(2 * workspace.files, Limits.shared_files),
    )
