"""Reading a page as a strict browser would."""

import re
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


class _Fields(HTMLParser):
    """What a browser would send of every form of a page, but for its buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._area, self._select = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        name, unticked = attributes.get("name", ""), "checked" not in attributes
        if (
            tag == "input"
            and name
            and not (attributes.get("type") in {"checkbox", "radio"} and unticked)
        ):
            unvalued = "on" if attributes.get("type") == "checkbox" else ""
            self.found.setdefault(name, []).append(attributes.get("value", unvalued))
        elif tag == "textarea":
            self._area, self.found[name] = name, [""]
        elif tag == "select":
            self._select = name
        elif tag == "option" and ("selected" in attributes or self._select not in self.found):
            self.found[self._select] = [attributes.get("value", "")]

    def handle_data(self, data: str) -> None:
        if self._area:
            self.found[self._area][0] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self.found[self._area] = [self.found[self._area][0].removeprefix("\n")]
            self._area = ""


def every_field(page: str) -> dict[str, list[str]]:
    reader = _Fields()
    reader.feed(page)
    return reader.found


def fields(page: str) -> dict[str, str]:
    return {name: values[-1] for name, values in every_field(page).items()}


def preview_fields(response: HttpResponse | Any) -> dict[str, list[str]]:
    """The fields of the page's form that writes what it shows, with its one-time key."""
    page = response if isinstance(response, str) else text(response)
    forms = re.findall(r"<form\b.*?</form>", page, re.DOTALL)
    [form] = [form for form in forms if 'name="preview"' in form]
    return every_field(form)


def form_fields(response: HttpResponse | Any) -> dict[str, str]:
    """The fields of the page's form that changes a row, with its one-time key."""
    forms = re.findall(r"<form\b.*?</form>", text(response), re.DOTALL)
    [form] = [form for form in forms if 'name="filled_from"' in form]
    return fields(form)


class _Notes(HTMLParser):
    """The text of every element with `data-note`, by its value."""

    _VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr", "source", "col"})

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._open: list[tuple[str, str | None, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        note = dict(attrs).get("data-note")
        if tag not in self._VOID:
            self._open.append((tag, note, []))
        elif note is not None:
            self.found.setdefault(note, []).append("")

    def handle_data(self, data: str) -> None:
        for _, _, said in self._open:
            said.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag not in (name for name, _, _ in self._open):
            return  # of an element that was not opened
        ended = ""
        while ended != tag:  # what HTML lets stay open ends with what is around it
            ended, note, said = self._open.pop()
            if note is not None:
                self.found.setdefault(note, []).append(" ".join("".join(said).split()))


def notes(response: HttpResponse | Any) -> dict[str, list[str]]:
    """What a page notes: the texts of its elements with `data-note`, by the note's name.

    A test asks for the name, which stays, and not for the sentence, which people improve.
    """
    reader = _Notes()
    reader.feed(response if isinstance(response, str) else text(response))
    reader.close()
    return reader.found


def codes(response: HttpResponse | Any) -> list[str]:
    """Of every refusal on a page, its code."""
    page = response if isinstance(response, str) else text(response)
    return re.findall(r'data-code="([^"]*)"', page)


def inline_code(response: HttpResponse | Any) -> list[str]:
    reader = _Inline()
    reader.feed(text(response))
    return reader.found


def text(response: HttpResponse | Any) -> str:
    return response.content.decode()


def body_of(response: HttpResponse | Any) -> bytes:
    """Of an answer that streams."""
    return b"".join(response.streaming_content)


def htmx(target: str, trigger: str = "") -> dict[str, str]:
    """Headers with which htmx asks for a part."""
    return {"HX-Request": "true", "HX-Target": target, "HX-Trigger": trigger}
