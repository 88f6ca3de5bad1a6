"""All attacks and duels there are: importing a file puts its attacks on the list."""

from tests.attacks import (
    descriptors,
    disk,
    egress,
    files,
    forged_answers,
    kernel,
    memory,
    namespaces,
    neighbours,
    output,
    processes,
    processor,
    procfs,
    programs,
    signals,
    sockets,
)
from tests.attacks.attack import ATTACKS, DUELS

__all__ = ["ATTACKS", "DUELS", "SUBJECTS"]

SUBJECTS = (
    descriptors,
    disk,
    egress,
    files,
    forged_answers,
    kernel,
    memory,
    namespaces,
    neighbours,
    output,
    processes,
    processor,
    procfs,
    programs,
    signals,
    sockets,
)
