"""The tools that come with the product, behind the wall like any other."""

from dataclasses import replace

from sandbox.spec import IsolationLevel, Limits, Preloaded, SandboxResult, SandboxSpec
from tools.builtin import manifest
from tools.runners.base import Run, sandbox


def run(job: Run) -> SandboxResult:
    builtin = manifest.ISOLATED[job.definition.raw["implementation"]["entry_point"]]
    profile = builtin.profile(job.organization)
    spec = SandboxSpec(
        organization=job.organization,
        profile=replace(profile, level=IsolationLevel(job.definition.isolation)),
        limits=Limits(wall_s=job.timeout_s, output_bytes=job.definition.max_output_bytes),
        program=Preloaded(builtin.module),
        parameters=job.arguments,
    )
    return sandbox().run(spec, cancelled=job.stop)
