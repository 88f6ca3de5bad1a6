"""A person at the running crib who goes by the words on its pages: links, labels and buttons."""

import http.cookiejar
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import MappingProxyType

_CHOSEN = {"checkbox", "radio"}
_PRESSED = {"submit", "button", "image", "reset", "file"}


@dataclass
class Form:
    """What it sends when no field is changed, and the labels of its fields."""

    action: str
    method: str
    values: list[tuple[str, str]] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)  # to the names of its fields
    labels: dict[str, str] = field(default_factory=dict)  # to the ids they are for
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict)

    def fill(self, label: str, value: str) -> None:
        name = self.ids[self.labels[label]]
        self.values = [one for one in self.values if one[0] != name] + [(name, value)]


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.forms: list[Form] = []
        self._open: list[tuple[str, dict[str, str], list[str]]] = []  # of what has words in it
        self._select = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(attributes.get("action", ""), attributes.get("method", "get")))
        if tag in {"a", "label", "button", "textarea"}:
            self._open.append((tag, attributes, []))
        if self.forms and tag in {"input", "textarea", "select"}:
            self._part(tag, attributes)
        if self.forms and tag == "option" and "selected" in attributes:
            self.forms[-1].values.append((self._select, attributes.get("value", "")))

    def handle_data(self, data: str) -> None:
        for _, _, words in self._open:
            words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            return
        _, attributes, parts = self._open.pop()
        words = " ".join("".join(parts).split())
        if tag == "a":
            self.links.append((words, attributes.get("href", "")))
        elif self.forms and tag == "label" and "for" in attributes:
            self.forms[-1].labels[words.rstrip(":").removesuffix(" required")] = attributes["for"]
        elif self.forms and tag == "button":
            self.forms[-1].buttons[words] = (
                attributes.get("name", ""),
                attributes.get("value", ""),
            )
        elif self.forms and tag == "textarea":
            self.forms[-1].values.append((attributes["name"], "".join(parts).removeprefix("\n")))

    def _part(self, tag: str, attributes: dict[str, str]) -> None:
        form, name, kind = (
            self.forms[-1],
            attributes.get("name", ""),
            attributes.get("type", "text"),
        )
        form.ids[attributes.get("id", "")] = name
        if tag == "select":
            self._select = name
        elif tag == "input" and kind in _PRESSED:
            form.buttons[attributes.get("value", "")] = (name, attributes.get("value", ""))
        elif tag == "input" and (kind not in _CHOSEN or "checked" in attributes):
            form.values.append((name, attributes.get("value", "on" if kind in _CHOSEN else "")))


class Reader:
    def __init__(self, url: str, username: str, password: str) -> None:
        self._origin = url
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        self.open(url)
        self.press("Log in", {"Name": username, "Password": password})

    def open(self, address: str) -> None:
        self._load(urllib.request.Request(urllib.parse.urljoin(self._origin, address)))

    def follow(self, *links: str) -> None:
        for words in links:
            found = [to for name, to in self.page.links if name == words]
            found += [to for name, to in self.page.links if name.startswith(f"{words} ")]
            assert found, f"{self.url} has no link {words!r}"
            self._load(urllib.request.Request(urllib.parse.urljoin(self.url, found[0])))

    def press(self, button: str, fields: Mapping[str, str] = MappingProxyType({})) -> None:
        """With what is written into the fields of these labels."""
        form = next(one for one in self.page.forms if button in one.buttons)
        for label, value in fields.items():
            form.fill(label, value)
        pairs = [pair for pair in [*form.values, form.buttons[button]] if pair[0]]
        sent, to = urllib.parse.urlencode(pairs), urllib.parse.urljoin(self.url, form.action)
        if form.method == "get":
            self.open(f"{to}?{sent}")
        else:
            self._load(urllib.request.Request(to, sent.encode(), {"Origin": self._origin}))

    def _load(self, request: urllib.request.Request) -> None:
        with self._opener.open(request, timeout=60) as answer:
            self.url, self.html = answer.geturl(), answer.read().decode()
        self.page = Page(self.html)
