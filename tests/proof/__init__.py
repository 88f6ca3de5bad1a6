"""Proof that a change of the suite lost nothing: coverage and mutants, the same for two suites.

    python -m tests.proof coverage --suite DIR --out FILE [pytest arguments]
    python -m tests.proof mutants --seed 7 --count 120 --out FILE
    python -m tests.proof kill --mutants FILE --contexts FILE --suite DIR --out FILE
    python -m tests.proof kill --gates --contexts FILE --suite DIR --out FILE
    python -m tests.proof compare OLD NEW

`coverage` runs the suite of a checkout and prints line and branch coverage by package. FILE names,
for each line, the tests that execute it; FILE.branches has the branches. Only the test process is
measured: what web, worker, beat and sandboxd execute is not. `tests/browser`, whose tests execute
the product in those alone, is left out: they switch greenlets, and to follow these makes every test
several times slower. So is `tests/proof`: it imports what measures, which then measures twice.

`mutants` draws faults from the product's source, evenly by package; the same seed and source give
the same ones. `--gates` takes the fixed list in `mutants.py`: gates, limits, tenants, permissions.

`kill` tries each mutant against the tests of a suite that execute its line. A line that runs at
import stands for the function that it decorates, or for the lines that use its name. Code of
`sandbox` that no test executes itself, because it runs in a process that a test starts, is tried
against all of `tests/sandbox`. One pytest process stops at the first failure, or after 120 s of
tests; tests that need the line only through a fixture of a module or the session come last, in a
second process if none of the others failed. A test that has run for 60 s when the time is over
counts as failed, for it hangs.

What runs mutated: the test process, and every process that a test starts from its checkout. The
product beside the tests (PostgreSQL, Valkey, web, worker, beat, sealer, sandboxd) starts once, runs
unmutated source, and starts again with fresh data every 25 mutants. A failure counts only when the
same tests in the same order then pass on unmutated source; otherwise that test is left out and the
mutant is tried again. Mutants are written to a copy of the checkout beside it, never to DIR.
"""
