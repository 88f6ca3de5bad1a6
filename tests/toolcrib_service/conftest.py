from tests.tools.toolservices.conftest import broker, queue, slug, url

__all__ = ["broker", "queue", "slug", "url"]
