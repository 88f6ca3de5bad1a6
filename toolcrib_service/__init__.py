"""Tool services: tools of your own, behind a queue. The standard library and `redis`, nothing else.

class Jokes(DynamicToolService):
    def invoke(self, user, config, arguments):
        return f"Hey {user}!"
"""

from toolcrib_service.running import run, serve
from toolcrib_service.service import Answer, DynamicToolService, ToolFailed

__all__ = ["Answer", "DynamicToolService", "ToolFailed", "run", "serve"]
