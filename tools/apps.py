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
            import_module(f"tools.policy.{listener}")
        metrics_files.merge_ended(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        import_module("tools.agents.turns")  # the road takes turns of agents, and knows none
