"""From a page of HTML to what a person reads of it. Runs inside the sandbox.

Every page is read twice: first past a parser that builds nothing, in linear time; then, unless
that showed a page made to be costly, by the extractor, which has quadratic corners.
"""

import logging
import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import trafilatura
from lxml import etree, html

MOST_ELEMENTS = 20_000
MOST_ATTRIBUTES = 500
MOST_CHARACTERS = 4_000_000
MOST_CPU_S = 10.0
LONGEST_TITLE = 500
LONGEST_LINK = 2_000
_SPARE_BYTES = 64 * 1024 * 1024  # what the extractor must leave of the run's memory
_WIDEST_CELL = 100
_PIECE = 64 * 1024
_HIDDEN = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "audio"}
    | {"video", "select", "textarea", "title"}
)
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details"}
    | {"dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1"}
    | {"h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre"}
    | {"section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"}
)
_CELLS = frozenset({"td", "th"})
# Libxml2 takes `<html/>` for the whole of a document.
_CLOSED_AT_ONCE = re.compile(r"(<html\b[^>]{0,999}?)\s{0,99}/>", re.IGNORECASE)
_SETTINGS: dict[str, Any] = {"encoding": "utf-8", "remove_comments": True, "remove_pis": True}
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\ufffe\uffff]")
_FOLLOWED = ("http://", "https://", "mailto:", "tel:")


@dataclass(frozen=True)
class Readable:
    """`main` says that the content is the page's main content, not all of its visible text."""

    title: str
    content: str
    main: bool


def read(page: str, url: str, *, markdown: bool) -> Readable:
    """The title of a page and its main content; all visible text where none is found."""
    markup = _parseable(page)
    sight = _parse_sight(markup)
    content = _extract_guarded(markup, url, sight.base, markdown) if sight.plain else None
    return Readable(sight.title, content or sight.text, bool(content))


class Sight:
    """What a parser shows of a page while it goes by: its visible text, and how large it is."""

    def __init__(self) -> None:
        self.title = self.text = self.base = ""
        self._elements = self._attributes = self._characters = 0
        self._hidden = self._preformatted = 0
        self._in_title = False
        self._words: list[str] = []
        self._lines: list[str] = []

    @property
    def plain(self) -> bool:
        """True for a page the extractor can be trusted with."""
        return (
            self._elements <= MOST_ELEMENTS
            and self._attributes <= MOST_ATTRIBUTES
            and self._characters <= MOST_CHARACTERS
        )

    def start(self, tag: str, attributes: Any) -> None:
        self._elements += 1
        self._attributes = max(self._attributes, len(attributes))
        self._hidden += tag in _HIDDEN
        self._in_title = tag == "title" and not self.title
        if tag in _BLOCKS:
            self._end_line()
        elif tag in _CELLS:
            self._words.append(" ")
        self._preformatted += tag == "pre"
        if tag == "base" and not self.base:
            self.base = attributes.get("href", "")[:LONGEST_LINK]

    def end(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN
        self._in_title = False
        if tag in _BLOCKS:
            self._end_line()
        self._preformatted -= tag == "pre"

    def data(self, data: str) -> None:
        self._characters += len(data)
        if self._in_title:
            self.title = (self.title + data)[: 2 * LONGEST_TITLE]
        elif self._hidden <= 0 and self._preformatted > 0:
            self._preformat(data)
        elif self._hidden <= 0:
            self._words.append(data)

    def close(self) -> "Sight":
        self._end_line()
        self.title = " ".join(self.title.split())[:LONGEST_TITLE]
        self.text = "\n".join(self._lines)
        return self

    def _preformat(self, data: str) -> None:
        first, *others = data.split("\n")
        self._words.append(first)
        for line in others:
            self._end_line()
            self._words.append(line)

    def _end_line(self) -> None:
        line = "".join(self._words)
        line = line.rstrip() if self._preformatted > 0 else " ".join(line.split())
        if line:
            self._lines.append(line)
        self._words.clear()


class OutOfTime(BaseException):
    """Not an Exception: the extractor catches those and goes on."""


def _parseable(page: str) -> bytes:
    head, rest = page[:4096], page[4096:]
    return (_CLOSED_AT_ONCE.sub(r"\1>", head, count=1) + rest).encode("utf-8", "replace")


def _parse_sight(markup: bytes) -> Sight:
    sight = Sight()
    parser = etree.HTMLParser(target=sight, huge_tree=True, **_SETTINGS)
    try:
        for at in range(0, len(markup), _PIECE):
            parser.feed(markup[at : at + _PIECE])
        parser.close()
    except etree.LxmlError:
        sight.close()  # an empty page, or one no parser makes sense of
    return sight


# What a strange page makes an extractor raise; the visible text is the answer then.
_UNREADABLE = (
    OutOfTime,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,  # RecursionError among them
    TypeError,
    ValueError,
    etree.LxmlError,
)


def _extract_guarded(markup: bytes, url: str, base: str, markdown: bool) -> str | None:
    try:
        with _cpu_limit(MOST_CPU_S), _reserve_memory(_SPARE_BYTES):
            return _extract(markup, _joined(url, base) or url, markdown)
    except _UNREADABLE:
        return None


def _extract(markup: bytes, base: str, markdown: bool) -> str | None:
    parser = html.HTMLParser(collect_ids=False, default_doctype=False, **_SETTINGS)
    tree = html.document_fromstring(markup, parser=parser)
    _prepare(tree, base)
    return trafilatura.extract(
        tree,
        output_format="markdown" if markdown else "txt",
        include_links=markdown,
        include_comments=False,
    )


def _prepare(tree: Any, base: str) -> None:
    """Links lead somewhere by themselves; a cell that spans thousands spans a hundred."""
    for link in tree.iter("a"):
        _complete(link, base)
    for cell in tree.iter("td", "th"):
        for span in ("colspan", "rowspan"):
            if len(cell.get(span, "")) > 2:
                cell.set(span, str(_WIDEST_CELL))


def _complete(link: Any, base: str) -> None:
    """What leads nowhere, or runs something, is only text."""
    address = _joined(base, link.get("href", "")[: LONGEST_LINK + 1].strip())
    if len(address) <= LONGEST_LINK and address.startswith(_FOLLOWED):
        link.set("href", address)
    else:
        link.tag = "span"


def _joined(base: str, address: str) -> str:
    """Empty for what is no URL."""
    try:
        joined = urljoin(base, address)
    except ValueError:
        return ""
    return "" if _CONTROLS.search(joined) else joined


@contextmanager
def _cpu_limit(cpu_s: float) -> Iterator[None]:
    """Raises OutOfTime when this process has computed for so long."""

    def raise_timeout(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, raise_timeout)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def _reserve_memory(spare: int) -> Iterator[None]:
    """So many bytes less, while it lasts: what runs out of memory can still be answered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft > spare:  # also false where there is no limit
        resource.setrlimit(resource.RLIMIT_DATA, (soft - spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _warm_up() -> None:
    """Have the template load what the extractor loads with its first page."""
    for name in ("trafilatura", "charset_normalizer", "htmldate", "courlan"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # a page's oddities are no news
    for markdown in (False, True):
        read("<html><body><p>A few words.</p><nav>More</nav></body></html>", "", markdown=markdown)


_warm_up()
