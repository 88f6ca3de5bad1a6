"""The tools that come with the product, as tests name them: a new one changes no list."""

from tools.builtin.manifest import DEFINITIONS
from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE

NAMES = sorted(definition["name"] for definition in DEFINITIONS)
CATEGORIES = {definition["name"]: definition["category"] for definition in DEFINITIONS}
_CORE = {"read_file", "write_file", "search_knowledge", "web_fetch", "execute_ckvs_query"}
BEYOND_CORE = [name for name in NAMES if name not in _CORE | IN_EVERY_LICENSE]
