"""Reading a page as a strict browser would."""

from html.parser import HTMLParser
from typing import Any

from django.http import HttpResponse

POLICY = "default-src 'none'"


class _Inline(HTMLParser):
    """Collects whatever the policy would refuse: inline scripts, styles and handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.found += [f"{tag} {name}" for name in names if name == "style" or name[:2] == "on"]
        self.found += [
            f"{tag} {value}" for value in names.values() if "javascript:" in (value or "")
        ]
        if tag == "style":
            self.found.append("style element")
        self._script = tag == "script" and "src" not in names and "data-" not in str(names)

    def handle_data(self, data: str) -> None:
        if self._script and data.strip():
            self.found.append(f"script {data.strip()[:40]}")

    def handle_endtag(self, tag: str) -> None:
        self._script = False


def inline_code(response: HttpResponse | Any) -> list[str]:
    reader = _Inline()
    reader.feed(text(response))
    return reader.found


def text(response: HttpResponse | Any) -> str:
    return response.content.decode()


def htmx(target: str, trigger: str = "") -> dict[str, str]:
    """Headers with which htmx asks for a part."""
    return {"HX-Request": "true", "HX-Target": target, "HX-Trigger": trigger}
