"""The name of a user's browser and operating system, by its `User-Agent` header."""

# The first match counts: most browsers name others too.
_BROWSERS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"),
             ("Safari/", "Safari"), ("curl/", "curl"))  # fmt: skip
_SYSTEMS = (("Windows", "Windows"), ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"),
            ("Mac OS X", "macOS"), ("Linux", "Linux"))  # fmt: skip


def browser(user_agent: str) -> str:
    name = _first(_BROWSERS, user_agent)
    system = _first(_SYSTEMS, user_agent)
    if not name:
        return user_agent[:40] or "An unknown program"
    return f"{name} on {system}" if system else name


def _first(known: tuple[tuple[str, str], ...], text: str) -> str:
    return next((word for mark, word in known if mark in text), "")
