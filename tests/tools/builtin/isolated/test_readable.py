import resource

import pytest

from tests.tools.builtin.isolated.conftest import ARTICLE, SENTENCES, page

URL = "http://good.example/news/today?x=1"


@pytest.fixture(scope="session")
def readable(inside):
    return inside["readable"]


@pytest.fixture
def read(readable):
    return lambda text, markdown=False: readable.read(text, URL, markdown=markdown)


def test_the_text_of_an_article_is_without_what_surrounds_it(read):
    found = read(ARTICLE)
    assert (found.title, found.main) == ("Bridges & roads in 2031", True)
    assert SENTENCES in found.content
    assert not any(word in found.content for word in ("Copyright", "About us", "never shown"))
    assert "](" not in found.content and "<" not in found.content


def test_markdown_keeps_headings_lists_tables_and_code(read):
    content = read(ARTICLE, markdown=True).content
    for part in ("# A bridge reopens", "## What it cost", "- Steel", "**all**", "| 2030 | 12 |"):
        assert part in content, part
    assert "```\nfor pillar in bridge:\n    inspect(pillar)\n```" in content


def test_links_lead_somewhere_by_themselves_and_run_nothing(read):
    content = read(ARTICLE, markdown=True).content
    assert "[the report](http://good.example/news/report?page=2)" in content
    assert "press here" in content and "javascript" not in content


def test_links_follow_the_base_a_page_names(read):
    based = ARTICLE.replace("<head>", '<head><base href="/elsewhere/">')
    assert "(http://good.example/elsewhere/report?page=2)" in read(based, markdown=True).content


@pytest.mark.parametrize(
    "target", ["http://[", "//[::1", "x" * 9_000, "data:text/html,x", "a&#1;b"]
)
def test_a_link_that_leads_nowhere_is_only_text(read, target):
    content = read(ARTICLE.replace("report?page=2", target), markdown=True).content
    assert "Read the report or" in " ".join(content.split())


def test_a_page_without_main_content_gives_all_that_is_visible(read):
    found = read(page("<script>x</script><img src=a.png><p><br><hr>"))
    assert (found.content, found.main, found.title) == ("", False, "t")


@pytest.mark.parametrize("markdown", [False, True])
def test_a_few_words_are_a_page_too(read, markdown):
    assert read(page("<p>Gone fishing."), markdown).content.strip() == "Gone fishing."


def test_xhtml_is_read_as_the_page_it_is(read):
    head = '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD" "x">\n'
    text = ARTICLE.replace("<!DOCTYPE html>\n", head).replace("<html ", '<html xmlns="x" ')
    assert SENTENCES in read(text).content


@pytest.mark.parametrize(
    "text",
    ["", " ", "<", "<html/>", "<!-- -->", "&#0;", "</p>", "<a href>", "<title>", "\x01", "<![C"],
)  # fmt: skip
def test_an_odd_page_is_read_somehow(read, text):
    assert isinstance(read(text).content, str)


def test_a_root_that_closes_itself_hides_nothing(read):
    assert SENTENCES in read(ARTICLE.replace('<html lang="en">', "<html lang='en' />")).content


def test_entities_of_a_documents_own_reach_no_file_and_do_not_multiply(read):
    file = '<!ENTITY f SYSTEM "file:///etc/passwd">'
    lines = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    text = f'<!DOCTYPE html [{file}<!ENTITY a0 "ha">{lines}]><html><body><p>&f; &a11; end</p>'
    content = read(text).content
    assert "root:" not in content and len(content) < 1_000


COSTLY = {
    "too many elements": "<p>x" * 20_001,
    "too deep": "<div>x" * 100_000,
    "one element of attributes": f"<p {' '.join(f'a{n}=1' for n in range(90_000))}>x",
    "nested tables": "<table><tr><td>x" * 30_000,
    "too much text": "word " * 900_000,
    "unclosed formatting": "<b><i><u></b>x</i>" * 20_000,
}  # fmt: skip


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY)
def test_a_costly_page_is_not_given_to_the_extractor(read, body):
    found = read(page(body))
    assert found.main is False
    assert found.content[:1] in {"x", "w"}


def test_the_visible_text_keeps_lines_cells_and_preformatted_blanks(readable, monkeypatch):
    monkeypatch.setattr(readable, "MOST_ELEMENTS", 0)
    body = "<p>a\n  b</p><tr><td>c</td><td>d</td></tr><pre>e\n  f</pre><div>g<br>h</div>"
    found = readable.read(page(f"<script>no</script>{body}"), URL, markdown=False)
    assert (found.main, found.content) == (False, "a b\nc d\ne\n  f\ng\nh")


def test_an_extraction_that_takes_too_long_is_left(readable, monkeypatch):
    monkeypatch.setattr(readable, "MOST_CPU_S", 0.2)
    rows = "<tr><td rowspan=65534 colspan=1000>x</td></tr>" * 200
    found = readable.read(page(f"<table>{rows}</table>"), URL, markdown=False)
    assert found.main is False and found.content.split() == ["x"] * 200


@pytest.mark.part("generated")
def test_an_extraction_that_needs_too_much_memory_is_left(readable):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    text = page("<article><p>" + "<b>x</b> " * 19_000)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + (96 << 20), before[1]))
    try:
        found = readable.read(text, URL, markdown=True)
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] < 1 << 40
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert found.main is False and found.content.startswith("x x")


def _data_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * resource.getpagesize()
