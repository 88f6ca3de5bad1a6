"""What is drawn, where it is put, and which lines it is executed by."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import gates, mutants
from tests.proof.mutants import Moved, Mutant, Source

CHECKOUT = Path(__file__).parents[2]
MODULE = '''"""A comparison in words: 1 < 2."""
from django.db import transaction

MOST = 3 * 10
GATES = (first, second)


class Shown:
    order = 1

    def __str__(self):
        return "a" if self.order > 1 else "b"


@transaction.atomic
def accept(rows, most: int = MOST) -> "Literal[1]":
    """Up to 5 of them."""
    found: "list[2]" = rows.filter(
        organization=1,
        name="a",
    )
    if not found and rows is not None:
        return None
    log.info("found", 7)
    found.lock()
    if len(found) > most:
        raise ValueError(f"more than {most + 1}")
    return [gate(found) for gate in GATES]
'''
DRAWN = {
    ("dropped decorator", "@transaction.atomic", ""),
    ("constant", "3", "4"),
    ("constant", "3", "2"),
    ("constant", "10", "11"),
    ("constant", "10", "9"),
    ("constant", "1", "2"),
    ("constant", "1", "0"),
    ("removed filter", "organization=1,\n        ", ""),
    ("removed filter", ',\n        name="a"', ""),
    ("negation", "not found", "(found)"),
    ("negation", "not found and rows is not None", "not (not found and rows is not None)"),
    ("negation", "len(found) > most", "not (len(found) > most)"),
    ("and/or", "and", "or"),
    ("comparison", "is not", "is"),
    ("comparison", ">", ">="),
    ("removed return", "return None", "pass"),
    ("removed call", "found.lock()", "pass"),
    ("removed raise", 'raise ValueError(f"more than {most + 1}")', "pass"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for package in mutants.PACKAGES:
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "rows.py").write_text(MODULE)
    (tmp_path / "tools" / "elsewhere.py").write_text(
        "from audit.rows import GATES as ALL\nFIRST = ALL[:1]\n\ndef run():\n    return FIRST\n"
    )
    return tmp_path


def _mutant_at(text: str, original: str, changed: str = "pass") -> Mutant:
    lines = MODULE.split("\n")
    line = next(number for number, found in enumerate(lines, 1) if text in found)
    column = lines[line - 1].index(original)
    found = lines[line - 1]
    return Mutant("audit", "audit/rows.py", line, column, "", original, changed, found)


def test_code_that_a_call_executes_is_changed_and_nothing_else():
    source = Source(MODULE.encode())
    found = [
        (edit.kind, MODULE[edit.start : edit.end], edit.replacement.decode())
        for edit in mutants.edits(source)
    ]
    assert len(found) == len({*found})
    assert {*found} == DRAWN


def test_what_is_drawn_is_other_code_that_parses(root: Path):
    for mutant in mutants.draw(root, seed=3, count=60):
        content = (root / mutant.file).read_bytes()
        after = ast.parse(mutants.mutated(mutant, content))
        assert ast.dump(after) != ast.dump(ast.parse(content))


def test_each_package_has_its_share_and_a_seed_draws_the_same(root: Path):
    drawn = mutants.draw(root, seed=3, count=27)
    shares = [sum(one.package == name for one in drawn) for name in mutants.PACKAGES]
    assert shares == [5, 5, 5, 4, 4, 4]
    assert drawn == mutants.draw(root, seed=3, count=27)
    assert drawn != mutants.draw(root, seed=4, count=27)


def test_a_mutant_is_found_where_lines_were_added_above():
    mutant = _mutant_at("found.lock()", "found.lock()")
    longer = MODULE.replace("MOST = 3", "# why\n# so many\nMOST = 3").encode()
    assert b"    pass\n    if len(found)" in mutants.mutated(mutant, longer)


def test_a_line_that_is_gone_is_said():
    mutant = _mutant_at("found.lock()", "found.lock()")
    with pytest.raises(Moved, match=r"audit/rows\.py:25 has no line 'found\.lock\(\)'"):
        mutants.mutated(mutant, MODULE.replace("found.lock()", "rows.lock()").encode())


@pytest.mark.parametrize(
    ("text", "original", "lines"),
    [
        ("found.lock()", "found.lock()", {25}),
        ("organization=1", "1", {18, 19, 20, 21}),
        ("rows is not None", "and", {22}),
        ("return None", "return None", {23}),
        ("@transaction", "@transaction.atomic", {17, 18, 19, 20, 21, 22, 24, 25, 26, 28}),
    ],
)
def test_a_statement_is_executed_by_its_own_lines(
    root: Path, text: str, original: str, lines: set[int]
):
    assert mutants.executed_by(root, _mutant_at(text, original)) == {"audit/rows.py": lines}


def test_what_runs_at_import_is_executed_by_those_who_use_its_name(root: Path):
    found = mutants.executed_by(root, _mutant_at("GATES = ", "second"))
    assert found == {"audit/rows.py": {28}, "tools/elsewhere.py": {5}}
    most = mutants.executed_by(root, _mutant_at("MOST = ", "10"))
    assert most == {"audit/rows.py": {17, 18, 19, 20, 21, 22, 24, 25, 26, 28}}


def test_a_focus_takes_all_lines_of_its_function(root: Path):
    mutant = replace(_mutant_at("GATES = ", "second"), focus=("audit/rows.py:accept",))
    assert mutants.executed_by(root, mutant) == {"audit/rows.py": {*range(17, 29)}}
    with pytest.raises(Moved, match=r"audit/rows\.py has no function gone"):
        mutants.executed_by(root, replace(mutant, focus=("audit/rows.py:gone",)))


def test_every_gate_is_there():
    """Where one is missing its line was rewritten: write the gate again, do not remove it."""
    found = gates.gate_mutants(CHECKOUT)
    assert len({mutant.kind for mutant in found}) == len(found) == len(gates.GATES)
    for mutant in found:
        ast.parse(mutants.mutated(mutant, (CHECKOUT / mutant.file).read_bytes()))
        assert any(mutants.executed_by(CHECKOUT, mutant).values()), mutant.kind


def test_a_gate_that_is_gone_is_said(tmp_path: Path):
    for gate in gates.GATES:
        (tmp_path / gate[1]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / gate[1]).write_text("")
    with pytest.raises(Moved) as problem:
        gates.gate_mutants(tmp_path)
    assert str(problem.value).count("0 times, not once") == len(gates.GATES)
