"""Tool services: tools of your own, behind a queue. The standard library and `redis`, nothing else.

class Jokes(DynamicToolService):
    def invoke(self, user, config, arguments):
        return f"Hey {user}!"
"""

from toolcrib_service.service import Answer, DynamicToolService, ToolFailed
from toolcrib_service.service_process import run, serve

__all__ = ["Answer", "DynamicToolService", "ToolFailed", "run", "serve"]
