"""Each bad history is a good one with one thing bent, and the checker says which."""

from dataclasses import replace

import pytest

from tests.faults.checker import Acknowledged, AuditedEvent, History, Move, Row, violations
from tests.faults.ledger import Effect


def move(was, became, old_fence, fence, at):
    return Move("e", was, became, old_fence, fence, "w", at)


ROW = Row("e", "k", "external", "Success", run="r1")
ACCEPTED = move(None, "Pending", None, 0, 1.0)
CLAIMED = move("Pending", "Running", 0, 1, 2.0)
RENEWED = move("Running", "Running", 1, 1, 2.5)
FINISHED = move("Running", "Success", 1, 1, 4.0)
ALLOWED = AuditedEvent("e", "TOOL.ACCEPT", None, 1.0)
STARTED = AuditedEvent("e", "TOOL.START", 1, 2.0)
ENDED = AuditedEvent("e", "TOOL.END", 1, 4.0, ends=True)
EFFECT = Effect("k", "r1", "effect", 3.0)
GOOD = History(
    rows=(ROW,),
    moves=(ACCEPTED, CLAIMED, RENEWED, FINISHED),
    events=(("e", "Started"), ("e", "Completed")),
    audited=(ALLOWED, STARTED, ENDED),
    effects=(EFFECT,),
    acknowledged=(Acknowledged("k", "e", "Success"),),
    used=1,
)
REAPED = Move("e", "Running", "Pending", 1, 1, "w", 3.5, lease_until=3.4, reaped=True)
RETRIED = replace(
    GOOD,
    rows=(replace(ROW, delivery="pure", run="r2"),),
    moves=(
        *(ACCEPTED, CLAIMED, REAPED),
        *(move("Pending", "Running", 1, 2, 4.0), move("Running", "Success", 2, 2, 6.0)),
    ),
    audited=(
        *(ALLOWED, STARTED),
        AuditedEvent("e", "TOOL.LOST", 1, 3.5),
        AuditedEvent("e", "TOOL.START", 2, 4.0),
        AuditedEvent("e", "TOOL.END", 2, 6.0, ends=True),
    ),
    effects=(
        *(Effect("k", "r1", "begin", 2.1), Effect("k", "r1", "effect", 3.0)),
        *(Effect("k", "r2", "begin", 4.1), Effect("k", "r2", "effect", 5.0)),
    ),
)
# Claimed as it was accepted by a process that died, and unknown since: the server's work went on.
IN_PLACE = replace(
    GOOD,
    rows=(
        replace(ROW, status="Failed", error_code="OUTCOME_UNKNOWN", run=None, goes_out=True,
                effect_possible=True),
    ),
    moves=(move(None, "Running", None, 1, 2.0), move("Running", "Failed", 1, 1, 4.0)),
    audited=(
        replace(ALLOWED, at=2.0), STARTED, AuditedEvent("e", "TOOL.LOST", 1, 4.0, ends=True),
    ),
    effects=(Effect("k", "r1", "begin", 3.0), Effect("k", "r1", "effect", 9.0)),
    acknowledged=(),
)  # fmt: skip
# Refused at the claim: the gate had closed meanwhile, so nothing began and there is no START.
REFUSED = replace(
    GOOD,
    rows=(replace(ROW, status="PermissionDenied", run=None),),
    moves=(ACCEPTED, CLAIMED, move("Running", "PermissionDenied", 1, 1, 2.0)),
    events=(("e", "Failed"),),
    audited=(ALLOWED, AuditedEvent("e", "TOOL.DENY", 1, 2.0, ends=True)),
    effects=(),
    acknowledged=(),
    used=0,
)


def bent_row(**fields):
    return replace(GOOD, rows=(replace(ROW, **fields),), acknowledged=())


def kinds(history):
    return {found.kind for found in violations(history)}


@pytest.mark.parametrize("history", [History(), GOOD, RETRIED, IN_PLACE, REFUSED])
def test_a_good_history_has_no_violations(history):
    assert violations(history) == []


BAD = {
    "an acknowledged call without a row": (
        replace(GOOD, acknowledged=(Acknowledged("k", "gone", "Pending"),)),
        "lost",
    ),
    "an answer of another call": (
        replace(GOOD, acknowledged=(Acknowledged("other", "e", "Success"),)),
        "lost",
    ),
    "a success that was taken back": (
        replace(GOOD, acknowledged=(Acknowledged("k", "e", "Failed"),)),
        "phantom",
    ),
    "a call that is not over": (bent_row(status="Running"), "unfinished"),
    "two rows of one key": (replace(GOOD, rows=(ROW, replace(ROW, id="e2"))), "doubled"),
    "two terminal events": (replace(GOOD, events=(*GOOD.events, ("e", "Failed"))), "events"),
    "no terminal event": (replace(GOOD, events=GOOD.events[:1]), "events"),
    "a move out of an end": (
        replace(GOOD, moves=(*GOOD.moves, move("Success", "Pending", 1, 1, 5.0))),
        "illegal",
    ),
    "a run that nobody claimed": (
        replace(GOOD, moves=(ACCEPTED, move("Pending", "Success", 0, 0, 2.0))),
        "illegal",
    ),
    "a call that was born lost": (
        replace(GOOD, moves=(move(None, "Failed", None, 0, 1.0),)),
        "illegal",
    ),
    "a move nobody saw": (replace(GOOD, moves=(ACCEPTED, FINISHED)), "illegal"),
    "a claim that keeps the fence": (
        replace(GOOD, moves=(ACCEPTED, move("Pending", "Running", 0, 0, 2.0))),
        "fence",
    ),
    "a fence that falls": (
        replace(GOOD, moves=(ACCEPTED, CLAIMED, move("Running", "Pending", 1, 0, 3.0))),
        "fence",
    ),
    "a start without an end": (replace(GOOD, audited=(ALLOWED, STARTED)), "unaudited"),
    "a claim without a start": (replace(GOOD, audited=(ALLOWED, ENDED), effects=()), "unaudited"),
    "a claim that was lost without a start": (
        replace(RETRIED, audited=tuple(one for one in RETRIED.audited if one is not STARTED)),
        "unaudited",
    ),
    "a call without a record of acceptance": (replace(GOOD, audited=(STARTED, ENDED)), "unaudited"),
    "an end without a record": (
        replace(GOOD, audited=(ALLOWED, STARTED, replace(ENDED, ends=False))),
        "unaudited",
    ),
    "an end recorded twice": (replace(GOOD, audited=(*GOOD.audited, ENDED)), "unaudited"),
    "two starts under one fence": (replace(GOOD, audited=(*GOOD.audited, STARTED)), "owners"),
    "an effect before its start": (
        replace(GOOD, effects=(replace(EFFECT, at=1.5),)),
        "unaudited",
    ),
    "more runs than starts": (
        replace(GOOD, effects=(EFFECT, replace(EFFECT, run="r2", at=3.1))),
        "unaudited",
    ),
    "an effect nobody called for": (
        replace(GOOD, effects=(EFFECT, replace(EFFECT, key="other"))),
        "unaudited",
    ),
    "a run that outlives its successor's beginning": (
        replace(RETRIED, effects=(*RETRIED.effects, Effect("k", "r1", "effect", 6.5))),
        "owners",
    ),
    "a run that outlives its row": (
        replace(GOOD, effects=(EFFECT, replace(EFFECT, what="begin", at=6.5))),
        "owners",
    ),
    "a work that was asked for after its row's end": (
        replace(IN_PLACE, effects=(Effect("k", "r1", "begin", 6.5),)),
        "owners",
    ),
    "a call that was performed in place without a start": (
        replace(IN_PLACE, audited=(ALLOWED, IN_PLACE.audited[2]), effects=()),
        "unaudited",
    ),
    "a call that was performed in place and not accepted": (
        replace(IN_PLACE, audited=IN_PLACE.audited[1:]),
        "unaudited",
    ),
    "an effect of another server that is not spoken of": (
        replace(IN_PLACE, rows=(replace(IN_PLACE.rows[0], effect_possible=False),)),
        "effects",
    ),
    "a call that was taken from a living worker": (
        replace(
            RETRIED,
            moves=tuple(
                replace(one, lease_until=3.6) if one is REAPED else one for one in RETRIED.moves
            ),
        ),
        "owners",
    ),
    "a fault of ours": (bent_row(status="Failed", error_code="INTERNAL_ERROR"), "ours"),
    "a call that was set aside as poison": (
        bent_row(status="Failed", error_code="POISONED"),
        "ours",
    ),
    "an effect that happened twice": (
        replace(RETRIED, rows=(replace(RETRIED.rows[0], delivery="external"),)),
        "effects",
    ),
    "a success without its effect": (replace(GOOD, effects=()), "effects"),
    "a result of another run": (bent_row(run="r9"), "effects"),
    "an effect of what never began": (bent_row(status="Cancelled", fence=0), "effects"),
    "an effect that is not spoken of": (bent_row(status="SandboxError"), "effects"),
    "a reservation that stays": (replace(GOOD, reservations=("e",)), "budget"),
    "an amount that stays held": (replace(GOOD, held=1), "budget"),
    "a success nobody paid for": (replace(GOOD, used=0), "budget"),
    "a call that was paid for twice": (replace(GOOD, used=2), "budget"),
}


@pytest.mark.parametrize(("history", "kind"), BAD.values(), ids=BAD)
def test_a_bad_history_is_found_and_named(history, kind):
    assert kind in kinds(history)


def test_an_unknown_outcome_may_have_had_its_effect_or_not():
    unknown = replace(ROW, status="Failed", error_code="OUTCOME_UNKNOWN", run=None)
    for effects in ((), (EFFECT,)):
        history = replace(GOOD, rows=(unknown,), effects=effects, acknowledged=())
        assert "effects" not in kinds(history)


def test_every_violation_names_its_execution():
    assert all("e" in str(found) for found in violations(bent_row(status="Running")))
