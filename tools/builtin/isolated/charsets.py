"""From the bytes of an answer to its text. Runs inside the sandbox."""

import codecs
import re

import charset_normalizer

# What browsers call an encoding, and the codec that reads it. Nothing else is decoded: the name
# comes from a stranger, and Python's codecs include compressors and ones of quadratic cost.
CODECS = {
    "utf-8": "utf-8",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    **{f"windows-125{digit}": f"cp125{digit}" for digit in range(9)},
    **{f"iso-8859-{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    "windows-874": "cp874",
    "ibm866": "cp866",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "macintosh": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "big5": "big5hkscs",
    "euc-jp": "euc-jp",
    "iso-2022-jp": "iso2022-jp",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
}
_OTHER_NAMES = {
    "utf-8": "utf8 unicode-1-1-utf-8",
    "utf-16le": "utf-16 utf16 utf-16-le unicode ucs-2 iso-10646-ucs-2",
    "utf-16be": "utf-16-be unicodefffe",
    "windows-1252": "iso-8859-1 iso8859-1 latin1 latin-1 l1 ascii us-ascii ansi_x3.4-1968 x-ansi",
    "windows-1254": "iso-8859-9 iso8859-9 latin5 latin-5 l5",
    "windows-874": "iso-8859-11 tis-620 cp874",
    "iso-8859-2": "latin2 latin-2 l2",
    "iso-8859-8": "iso-8859-8-i iso-8859-8-e logical visual hebrew",
    "iso-8859-15": "latin9 latin-9 l9",
    "ibm866": "cp866 866",
    "koi8-r": "koi koi8 koi8_r",
    "koi8-u": "koi8-ru",
    "macintosh": "mac x-mac-roman mac-roman",
    "x-mac-cyrillic": "mac-cyrillic x-mac-ukrainian",
    "gbk": "gb2312 gb_2312-80 chinese csgb2312 x-gbk cp936 hz-gb-2312",
    "big5": "big5-hkscs big5hkscs cn-big5 x-x-big5 cp950",
    "euc-jp": "x-euc-jp",
    "shift_jis": "shift-jis sjis x-sjis ms_kanji windows-31j ms932 cp932",
    "euc-kr": "ks_c_5601-1987 ks_c_5601-1989 ksc5601 korean windows-949 cp949 uhc",
}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16le"),
    (codecs.BOM_UTF16_BE, "utf-16be"),
)
# What pages that declare nothing are written in. With more to choose from, more is mistaken: Latin
# letters of the West and of the East look alike.
_GUESSES = [
    *("cp1252", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp874", "koi8-r"),
    *("gb18030", "big5hkscs", "euc-jp", "cp932", "cp949"),
]
_SEARCHED_BYTES = 2048
# Bounded gaps: what stands between is short, or it is no declaration.
_META = re.compile(rb"<meta\b[^>]{0,400}?\bcharset\s{0,9}=\s{0,9}[\"']?([\w.:-]{2,40})", re.I)
_XML = re.compile(rb"\s{0,99}<\?xml\b[^>]{0,99}?\bencoding\s{0,9}=\s{0,9}[\"']([\w.:-]{2,40})")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_SAMPLE = 6_000
_UNPRINTABLE = {
    code: "\ufffd" if code == 0 else None
    for code in (*range(9), 11, *range(14, 32), 0xFFFE, 0xFFFF)
}


def encoding_name(label: str) -> str | None:
    """The name of an encoding in browsers by one of its labels, if it is known."""
    return _LABELS.get(label.strip().lower())


def decode(body: bytes, declared: str | None, *, markup: bool) -> tuple[str, str]:
    """The text and the name of its encoding: from its byte order mark, the server's
    header, the page itself, UTF-8, or a guess. Bytes that cannot be decoded become U+FFFD.
    """
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _text(body[len(mark) :], name), name
    name = (
        _declared_name(declared) or (_name_in_page(body) if markup else None) or _guess_name(body)
    )
    return _text(body, name), name


def printable(text: str) -> str:
    """Removes control characters and lone surrogates, which no database or parser accepts."""
    text = text.translate(_UNPRINTABLE)
    return text.encode("utf-8", "replace").decode() if _has_lone_surrogate(text) else text


def _labels() -> dict[str, str]:
    labels = {name: name for name in CODECS}
    for name, others in _OTHER_NAMES.items():
        labels |= dict.fromkeys(others.split(), name)
    for name in CODECS:
        kind, _, number = name.rpartition("-")
        if kind == "windows":
            labels |= {f"cp{number}": name, f"x-cp{number}": name}
        elif kind == "iso-8859":
            labels |= {f"iso8859-{number}": name, f"iso_8859-{number}": name}
    return labels


_LABELS = _labels()


def _declared_name(label: str | None) -> str | None:
    return encoding_name(label) if label else None


def _name_in_page(body: bytes) -> str | None:
    """The encoding that a page declares. A page that can be searched as ASCII is not UTF-16."""
    head = body[:_SEARCHED_BYTES]
    found = _XML.match(head) or _META.search(head)
    name = encoding_name(found[1].decode("ascii", "replace")) if found else None
    return "utf-8" if name in {"utf-16le", "utf-16be"} else name


def _guess_name(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return _detect_name(_sample(body)) or "utf-8"
    return "utf-8"


def _sample(body: bytes) -> bytes:
    """A few thousand bytes from where it is no longer ASCII, between two ASCII blanks or tags."""
    first = _NOT_ASCII.search(body)
    begin = max(0, first.start() - 200) if first else 0
    piece = body[begin : begin + _SAMPLE]
    end = max(piece.rfind(b) for b in (b" ", b"\n", b"<"))
    return piece[:end] if begin + _SAMPLE < len(body) and end > _SAMPLE // 2 else piece


def _detect_name(sample: bytes) -> str | None:
    found = charset_normalizer.from_bytes(sample, cp_isolation=_GUESSES).best()
    return encoding_name(found.encoding.replace("_", "-")) if found else None


def _text(body: bytes, name: str) -> str:
    return printable(body.decode(CODECS[name], "replace"))


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
