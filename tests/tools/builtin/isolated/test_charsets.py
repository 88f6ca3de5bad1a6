import pytest

FRENCH = "Où sont passés les élèves ? À l’école, bien sûr, déjà très tôt."
RUSSIAN = "Мост закрыли в марте, когда проверка нашла трещины в двух опорах."
JAPANESE = "橋は三月に閉鎖されました。点検で二本の柱にひびが見つかったためです。"
KOREAN = "점검에서 두 기둥에 균열이 발견되어 다리는 삼월에 폐쇄되었다."
CHINESE = "检查发现两根桥墩有裂缝，这座桥在三月份关闭了。"
GREEK = "Η γέφυρα έκλεισε τον Μάρτιο όταν ο έλεγχος βρήκε ρωγμές."
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy."


@pytest.fixture(scope="session")
def charsets(inside):
    return inside["charsets"]


def decoded(charsets, body, declared=None, markup=True):
    return charsets.decode(body, declared, markup=markup)


@pytest.mark.parametrize("name", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_counts_more_than_what_is_said(charsets, name):
    text, _ = decoded(charsets, RUSSIAN.encode(name), "windows-1252")
    assert text == RUSSIAN


@pytest.mark.parametrize(
    ("label", "codec", "text", "name"),
    [
        ("ISO-8859-1", "cp1252", FRENCH, "windows-1252"),
        ("cp1251", "cp1251", RUSSIAN, "windows-1251"),
        ("KOI8-R", "koi8-r", RUSSIAN, "koi8-r"),
        ("Shift_JIS", "cp932", JAPANESE, "shift_jis"),
        ("x-sjis", "cp932", JAPANESE, "shift_jis"),
        ("ISO-2022-JP", "iso2022-jp", JAPANESE, "iso-2022-jp"),
        ("gb2312", "gb18030", CHINESE, "gbk"),
        ("ks_c_5601-1987", "cp949", KOREAN, "euc-kr"),
        ("iso8859-7", "iso8859-7", GREEK, "iso-8859-7"),
        ("utf-16", "utf-16-le", GREEK, "utf-16le"),
        ("UTF8", "utf-8", CZECH, "utf-8"),
    ],
)
def test_what_the_server_says_is_read_as_browsers_read_it(charsets, label, codec, text, name):
    assert decoded(charsets, text.encode(codec), label) == (text, name)


@pytest.mark.parametrize(
    "declaration",
    [
        '<meta charset="windows-1251">',
        "<META CHARSET = windows-1251 >",
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
        '<?xml version="1.0" encoding="windows-1251"?>',
    ],
)
def test_what_the_page_says_is_heard(charsets, declaration):
    body = f"{declaration}<p>{RUSSIAN}".encode("cp1251")
    assert decoded(charsets, body)[1] == "windows-1251"
    assert RUSSIAN in decoded(charsets, body)[0]


def test_what_the_server_says_counts_more_than_what_the_page_says(charsets):
    body = f'<meta charset="koi8-r">{CZECH}'.encode()
    assert decoded(charsets, body, "utf-8")[0].endswith(CZECH)


@pytest.mark.parametrize(("before", "more"), [(b" " * 3000, {}), (b"", {"markup": False})])
def test_what_a_page_says_far_below_or_without_markup_is_not_heard(charsets, before, more):
    body = before + b'<meta charset="koi8-r">' + CZECH.encode()
    assert decoded(charsets, body, **more)[1] == "utf-8"


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1252", FRENCH), ("cp1251", RUSSIAN), ("koi8-r", RUSSIAN), ("cp932", JAPANESE),
        ("euc-jp", JAPANESE), ("gb18030", CHINESE), ("cp949", KOREAN), ("cp1253", GREEK),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "<p>Menu</p>\n" * 2000])
def test_a_page_that_says_nothing_is_read_by_its_looks(charsets, codec, text, before):
    body = before.encode() + (text * 3).encode(codec) + b"\n<p>Imprint</p>" * 2000
    assert text in decoded(charsets, body)[0]


@pytest.mark.parametrize(
    "label",
    ["zlib", "rot13", "punycode", "idna", "unicode_escape", "utf-7", "base64", "", "x" * 99],
)  # fmt: skip
def test_an_encoding_no_page_has_is_not_used(charsets, label):
    assert decoded(charsets, b"plain +AGE- \\u0041", label) == ("plain +AGE- \\u0041", "utf-8")


@pytest.mark.parametrize("declared", [None, "utf-8", "utf-16", "shift_jis", "windows-1252"])
def test_what_no_encoding_explains_is_replaced_and_can_be_stored(charsets, declared):
    text, _ = decoded(charsets, bytes(range(256)) * 300 + b"\xff", declared)
    assert "\0" not in text and "\x1b" not in text
    assert text.encode("utf-8")


def test_a_lone_surrogate_does_not_get_out(charsets):
    assert charsets.printable("a\ud800b\0c\td") == "a?b\ufffdc\td"


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    "body",
    [b"<meta " * 200_000 + b"\xe9", b"<?xml " + b"a" * 900_000, b"\xe9" * 900_000,
     b"<meta charset=" * 70_000, b"\x81\xff" * 400_000],
    ids=["metas", "a long declaration", "one letter", "many declarations", "nothing fits"],
)  # fmt: skip
def test_a_body_made_to_be_slow_is_read(charsets, body):
    text, name = decoded(charsets, body)
    assert text and name in charsets.CODECS
