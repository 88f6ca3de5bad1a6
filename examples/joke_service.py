"""The joke service of specification S2: a whole tool service.

python -m toolcrib_service examples.joke_service.JokeService --url redis://localhost:6379
"""

import random
from typing import Any

from toolcrib_service import DynamicToolService

JOKES = {
    "pun": "I told {topic} a joke. It was received in good order.",
    "dad": "What do you call {topic} on a Friday? Late.",
    "knock-knock": "Knock knock. Who is there? {topic}. {topic} who? Exactly.",
}


class JokeService(DynamicToolService):
    id = "joke-service"
    request_queue = "non-persistent://tg/request/joke"
    response_queue = "non-persistent://tg/response/joke"
    config_params = ({"name": "style", "required": False},)

    async def invoke(self, user: str, config: dict[str, Any], arguments: dict[str, Any]) -> str:
        style = config.get("style", "pun")
        joke = pick_joke(arguments.get("topic") or "nobody", style)
        return f"Hey {user}! Here's a {style} for you:\n\n{joke}"


def pick_joke(topic: str, style: str) -> str:
    template = JOKES.get(style) or random.choice(list(JOKES.values()))  # noqa: S311 - for fun
    return template.replace("{topic}", topic)
