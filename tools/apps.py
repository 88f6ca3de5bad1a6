from importlib import import_module

from django.apps import AppConfig


class ToolsConfig(AppConfig):
    name = "tools"
    verbose_name = "Tool crib"

    def ready(self) -> None:
        for listener in ("freshness", "person_sessions"):  # they listen for logins
            import_module(f"tools.policy.{listener}")
        import_module("tools.agents.turns")  # the road takes turns of agents, and knows none
