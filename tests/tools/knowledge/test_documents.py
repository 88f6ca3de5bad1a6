"""Deeply nested RDF documents, parsed in a separate process, are refused before the stack
overflows."""

import subprocess
import sys

import pytest
from django.conf import settings

from tools.knowledge import graph_documents
from tools.knowledge.graph_documents import BadGraphDocument, Syntax

READS = """
import sys
from tools.knowledge.graph_documents import BadGraphDocument, Syntax, contents
try:
    contents(sys.stdin.buffer.read(), Syntax(sys.argv[1]))
except BadGraphDocument as flaw:
    print(flaw)
"""
DEEP = [
    (Syntax.JSON_LD, '{"a:a":' * 4_000 + "1" + "}" * 4_000),
    (Syntax.JSON_LD, '{"a:\\"]}]}":' * 4_000 + "1" + "}" * 4_000),
    (Syntax.JSON_LD, '{"@graph":[' * 20_000 + "]}" * 20_000),
    (Syntax.JSON_LD, '{"@context":{"a":{"@id":"a:a",' * 20_000),
    (Syntax.JSON_LD, "[" * 100_000),
    (Syntax.JSON_LD, '{"\n":1,' + '"a:a":{"\n":"\n",' * 20_000),
    (Syntax.TURTLE, "<a:a> <a:b> " + "<<( <a:a> <a:b> " * 20_000),
    (Syntax.TURTLE, "<< " * 20_000 + "<a:a> <a:b> 1" + " >> <a:b> 1" * 20_000 + " ."),
]


@pytest.mark.part("generated", but_each=3)
@pytest.mark.parametrize(("syntax", "text"), DEEP, ids=range(len(DEEP)))
def test_a_document_that_nests_without_end_is_refused_and_ends_nobody(syntax, text):
    words = [sys.executable, "-c", READS, str(syntax)]
    given = {"input": text.encode(), "cwd": settings.BASE_DIR, "timeout": 20}
    done = subprocess.run(words, check=False, capture_output=True, **given)
    assert done.returncode == 0, done.stderr
    assert b"nested deeper than 64" in done.stdout or b"another statement" in done.stdout


def test_what_only_looks_deep_is_read():
    text = '{"@id": "a:a", "a:b": "' + "{[" * 500 + '\\"' + "[" * 500 + '"}'
    assert graph_documents.contents(text.encode(), Syntax.JSON_LD).statements == 1
    turtle = "\n".join(f'<a:a> <a:b> "{at} << [[[[ ((((" .' for at in range(200))
    assert graph_documents.contents(turtle.encode(), Syntax.TURTLE).statements == 200


def test_the_deepest_that_is_read_is_told():
    def nested(count):
        return ('{"a:a":' * count + "1" + "}" * count).encode()

    assert graph_documents.contents(nested(64), Syntax.JSON_LD).statements == 64
    with pytest.raises(BadGraphDocument, match="deeper than 64"):
        graph_documents.contents(nested(65), Syntax.JSON_LD)
