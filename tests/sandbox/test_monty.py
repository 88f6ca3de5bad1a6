"""Monty, the small Python for expressions and glue: how it is found, and what its slots are.

What every engine promises is in test_engines.py.
"""

import os
from dataclasses import replace

from sandbox.backends import monty_backend
from sandbox.spec import Backend, IsolationLevel, Profile


def test_monty_is_found_by_working_something_out():
    assert monty_backend.MontyBackend(lambda profile: profile).flaw() is None


def test_its_slots_are_ours_with_the_vm_beside_the_libraries_of_the_profile():
    profile = Profile(IsolationLevel.STRICT, libraries=("/usr/lib/one",), backend=Backend.MONTY)
    wider = monty_backend.MontyBackend(lambda made: made).template(profile)
    assert wider == replace(profile, libraries=("/usr/lib/one", *monty_backend.libraries()))
    assert all(os.path.exists(path) for path in monty_backend.libraries())
    assert os.path.basename(monty_backend.libraries()[-1]) == "monty"
