import os
from importlib import import_module
from pathlib import Path

from django.apps import AppConfig

from config import metrics_files


class ToolsConfig(AppConfig):
    name = "tools"
    verbose_name = "Tool crib"

    def ready(self) -> None:
        for listener in ("freshness", "person_sessions"):  # they listen for logins
            import_module(f"tools.accounts.login.{listener}")
        metrics_files.merge_ended(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        for kinds in ("tools.workflows.kinds", "tools.agents.run_agent"):
            import_module(kinds)  # registers composite calls, which the pipeline does not import
