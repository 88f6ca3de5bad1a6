import os
from importlib import import_module
from pathlib import Path

from django.apps import AppConfig

from config import metrics_files

# Modules that register kinds of composite calls, which the pipeline does not import.
COMPOSITE_CALLS = (
    "workflows.batches", "workflows.chains", "workflows.programs", "workflows.tool_discovery",
    "agents.run_agent",
)  # fmt: skip


class ToolsConfig(AppConfig):
    name = "tools"
    verbose_name = "Tool crib"

    def ready(self) -> None:
        import_module("tools.accounts.login.login")  # it listens for logins
        metrics_files.merge_ended(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        for module in COMPOSITE_CALLS:
            import_module(f"tools.{module}")
