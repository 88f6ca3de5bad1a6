"""Tools written in Python by an organization: source from the version, run behind the wall."""

from sandbox.spec import IsolationLevel, Limits, Profile, SandboxResult, SandboxSpec, Source
from tools.runners.base import Run, sandbox


def run(job: Run) -> SandboxResult:
    implementation = job.definition.raw["implementation"]
    spec = SandboxSpec(
        organization=job.organization,
        profile=Profile(level=IsolationLevel(job.definition.isolation)),
        limits=Limits(wall_s=job.timeout_s, output_bytes=job.definition.max_output_bytes),
        program=Source(implementation["source"], implementation["entry_point"]),
        parameters=job.arguments,
    )
    return sandbox().run(spec, cancelled=job.stop)
