"""Index entries: the words that an entity is found by, extracted from its statements."""

import pytest

from tools.knowledge import entity_index

RDFS = "http://www.w3.org/2000/01/rdf-schema#"


def read(text):
    return entity_index.entries(text.encode())


def test_texts_are_told_apart_by_what_says_them():
    (one,) = read(
        f'<urn:a> <{RDFS}label> "Iron"@en .\n<urn:a> <{RDFS}comment> "A metal" .\n'
        f'<urn:a> <urn:p> "26" .\n<urn:a> <{entity_index.TYPE}> <http://e.org/v#Element> .\n'
        "<urn:a> <urn:p> <urn:b> .\n"
    )
    assert (one.labels, one.descriptions) == ([("Iron", "en")], [("A metal", "")])
    assert (one.others, one.names) == (["26"], ["iron"])
    assert one.kinds == ["element", "http://e.org/v#Element"]


def test_nodes_without_a_name_are_nobody():
    assert read('_:b <urn:p> "x" .\n') == []


def test_control_characters_come_to_be_spaces():
    (one,) = read('<urn:a> <urn:p> "x\\u0000y\\u0007" .\n')
    assert one.others == ["x y "]


def test_of_a_long_text_only_so_much_is_indexed():
    (one,) = read(f'<urn:a> <urn:p> "{"x" * 90_000}" .\n<urn:a> <urn:p> "{"y" * 90_000}" .\n')
    assert sum(len(text) for text in one.others) == 100_000


@pytest.mark.parametrize(
    ("given", "folded"), [("ÉTÉ", "ete"), ("Straße", "strasse"), ("ﬁ", "fi"), ("İ", "i")]
)
def test_case_and_accents_are_folded(given, folded):
    assert entity_index.fold(given) == folded


@pytest.mark.parametrize(
    ("iri", "words"),
    [("urn:x:atomicNumber_2", "atomic Number 2"), ("http://e.org/a%20b/", "a b"), ("x:", "x")],
)
def test_the_end_of_an_iri_is_words(iri, words):
    assert entity_index.local_words(iri) == words


def test_what_is_no_iri_is_asked_about_by_nobody():
    given = ["urn:b", "urn:a", "urn:a", "no iri", "", "urn:\ud800", "urn:" + "x" * 2_000]
    assert entity_index.subjects(given) == ["urn:a", "urn:b"]
