from importlib import import_module

from django.apps import AppConfig


class ToolsConfig(AppConfig):
    name = "tools"
    verbose_name = "Tool crib"

    def ready(self) -> None:
        import_module("tools.policy.person_sessions")  # it listens for logins
