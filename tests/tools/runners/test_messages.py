"""`send_message` through the whole execution pipeline: a person approves, and servers on loopback
receive."""

import hmac
import json
from contextlib import closing
from hashlib import sha256

import pytest
from django.db import connection, transaction

from tests import factories
from tests.stubs.mail import open_office
from tests.stubs.web import Authority, Raw, Reply, serving
from tests.tools.approval_requests import (
    approve,
    approver,
    attempted,
    call_awaiting_approval,
    never_began,
)
from tools.catalog.actions import update_tool
from tools.errors import Malformed
from tools.execution.claim import claim
from tools.execution.perform import RUN
from tools.messaging import message_channels, outbox
from tools.models import Execution, InboxItem, Message, MessageChannel

pytestmark = pytest.mark.usefixtures("committed", "loopback_is_open")
MAIL = {
    "name": "post",
    "kind": "email",
    "host": "127.0.0.1",
    "security": "none",
    "sender": "crib@example.com",
    "recipients": ["ada@example.com", "@example.org"],
}


@pytest.fixture
def sender(organization):
    return factories.agent(organization, groups=["messages"], permissions=["tool.message.send"])


@pytest.fixture
def office():
    with open_office() as found:
        yield found


@pytest.fixture
def hook():
    with serving() as web:
        web.replies["/secret-path"] = Reply(body=b"thanks for secret-path")
        yield web


def channel(organization, **fields):
    by = factories.actor(organization)
    return message_channels.create_channel(organization=organization, channel=fields, by=by)


def sent(agent, **parameters):
    """The execution after an approval and a worker's run."""
    said = {"subject": "Hello", "body": "It works.", "to": ["ada@example.com"]} | parameters
    waiting = call_awaiting_approval(agent, "send_message", group=["messages"], **said)
    with transaction.atomic():  # claimed before the crib's worker can see it
        approve(waiting, approver(agent.organization))
        performance = claim(waiting.execution_id, "tests")
    for step in RUN:
        step(performance)
    return Execution.objects.get(pk=waiting.execution_id)


def message_of(done):
    return Message.objects.get(execution_id=done.pk)


def test_nothing_is_sent_before_a_person_agrees(organization, sender, office):
    channel(organization, **MAIL, port=office.port)
    execution = factories.execution(
        sender, "send_message", group=["messages"], channel="post", to=["ada@example.com"],
        subject="Hello", body="x",
    )  # fmt: skip
    assert execution.status == "RequiresConfirmation"
    assert never_began(attempted(execution)) and office.letters == []


def test_no_definition_of_it_does_without_a_person(organization):
    tool = organization.tools.get(name="send_message")
    definition = tool.version.definition | {"requires_confirmation": False}
    with pytest.raises(Malformed) as refusal:
        update_tool(tool=tool, definition=definition, by=factories.actor(organization))
    assert "requires_confirmation" in str(refusal.value.details["errors"])


def test_mail_arrives_and_its_row_says_so(organization, sender, office):
    channel(organization, **MAIL, port=office.port, subject_template="[crib] {{ subject }}")
    done = sent(sender, channel="post", to=["ada@example.com", "eve@example.org"])
    assert (done.status, done.output["state"]) == ("Success", "sent")
    (letter,) = office.letters
    assert letter.recipients == ["ada@example.com", "eve@example.org"]
    assert letter.mail["Subject"] == "[crib] Hello"
    assert letter.mail.get_content().strip() == "It works."
    message = message_of(done)
    assert letter.mail["Message-ID"] == f"<{message.pk}@example.com>"
    assert (message.state, message.answer) == ("sent", "250 kept as number 7")


@pytest.mark.part("calls")
@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_goes_through_tls_with_a_login(organization, sender, settings, tmp_path, security):
    authority = Authority(tmp_path, "127.0.0.1")
    settings.EGRESS_CA_FILE = authority.file
    with open_office(**{security: authority.server_context()}) as office:
        fields = MAIL | {"security": security, "port": office.port}
        channel(organization, **fields, username="crib", password="correct horse")
        done = sent(sender, channel="post")
    assert done.status == "Success"
    assert office.logins == [("crib", "correct horse")] and office.letters[0].secured


def test_a_refused_login_is_a_failure_without_the_password(organization, sender, office):
    channel(organization, **MAIL, port=office.port, username="crib", password="swordfish")
    done = sent(sender, channel="post")
    assert (done.status, done.error_code) == ("Failed", "MESSAGE_NOT_SENT")
    message = message_of(done)
    assert message.state == "failed" and "swordfish" not in message.answer + done.error_message


def test_a_refused_recipient_bounces_and_no_mail_is_sent(organization, sender, office):
    office.refusals["eve@example.org"] = "550 no such user"
    channel(organization, **MAIL, port=office.port)
    done = sent(sender, channel="post", to=["ada@example.com", "eve@example.org"])
    message = message_of(done)
    assert (done.status, message.state) == ("Failed", "bounced")
    assert message.refused == {"eve@example.org": "550 no such user"} and office.letters == []


@pytest.mark.parametrize("where", ["recipient", "letter"])
def test_a_password_that_the_server_repeats_is_masked(organization, sender, office, where):
    said = "550 you came with correct horse"
    if where == "recipient":
        office.refusals["ada@example.com"] = said
    office.verdict = said
    own = {"port": office.port, "username": "crib", "password": "correct horse"}
    channel(organization, **MAIL | own)
    done = sent(sender, channel="post", to=["ada@example.com"])
    message = Message.objects.get(organization=organization)
    received = f"{done.error_message} {message.answer} {message.refused}"
    assert done.status == "Failed" and "horse" not in received and "550" in received


def test_a_recipient_refused_for_now_is_no_bounce(organization, sender, office):
    office.refusals["ada@example.com"] = "451 later"
    channel(organization, **MAIL, port=office.port)
    assert message_of(sent(sender, channel="post")).state == "failed"


def test_a_letter_the_server_refuses_is_a_definite_failure(organization, sender, office):
    office.verdict = "554 spam"
    channel(organization, **MAIL, port=office.port)
    done = sent(sender, channel="post")
    assert (done.error_code, message_of(done).answer) == (
        "MESSAGE_NOT_SENT",
        "The mail server refused it: 554 spam",
    )


def test_a_lost_answer_leaves_the_outcome_unknown(organization, sender, office):
    office.hangs_up = True
    channel(organization, **MAIL, port=office.port)
    done = sent(sender, channel="post")
    assert (done.status, done.error_code) == ("Failed", "OUTCOME_UNKNOWN")
    assert message_of(done).state == "unknown" and len(office.letters) == 1


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "to",
    [
        [],
        ["eve@example.com"],
        ["eve@sub.example.org"],
        ["eve@example.org.evil.example"],
        ["eve@example.org\r\nRCPT TO:<x@y.example>"],
        ["<eve@example.org>"],
        [f"p{n}@example.org" for n in range(11)],
    ],
)
def test_who_is_not_allowed_is_not_written_to(organization, sender, office, to):
    channel(organization, **MAIL, port=office.port)
    done = sent(sender, channel="post", to=to)
    assert done.status == "Failed" and done.error_code.startswith("RECIPIENT")
    assert office.letters == [] and not Message.objects.filter(execution_id=done.pk).exists()


def test_a_channel_that_was_switched_off_meanwhile_sends_nothing(organization, sender, office):
    row, _ = channel(organization, **MAIL, port=office.port)
    message_channels.change_channel(
        row=row, changes={"enabled": False}, by=factories.actor(organization)
    )
    assert sent(sender, channel="post").error_code == "CHANNEL_DISABLED"


def test_another_organizations_channel_is_not_there(organization, sender, office):
    other = factories.organization(f"{organization.slug}-b")
    channel(other, **MAIL, port=office.port)
    assert sent(sender, channel="post").error_code == "CHANNEL_UNKNOWN"


def test_no_more_than_its_share_of_an_hour(organization, sender, office):
    channel(organization, **MAIL, port=office.port, most_an_hour=1)
    assert sent(sender, channel="post").status == "Success"
    assert sent(sender, channel="post").error_code == "CHANNEL_FULL"


@pytest.mark.part("calls")
@pytest.mark.parametrize(("answer", "state"), [("550 nobody", "bounced"), ("451 later", "failed")])
def test_what_failed_or_bounced_counts_as_well(organization, sender, office, answer, state):
    office.refusals["ada@example.com"] = answer
    channel(organization, **MAIL, port=office.port, most_an_hour=1)
    assert message_of(sent(sender, channel="post")).state == state
    assert sent(sender, channel="post").error_code == "CHANNEL_FULL"


def test_a_private_address_is_refused_unless_it_was_opened(organization, sender, office, settings):
    settings.EGRESS_ALLOW_PRIVATE = []
    channel(organization, **(MAIL | {"security": "starttls"}), port=office.port)
    done = sent(sender, channel="post")
    assert done.status == "Failed" and "ADDRESS_NOT_ALLOWED" in done.error_message


def test_a_webhook_is_signed_and_carries_a_key_of_its_own(organization, sender, hook):
    _, key = channel(organization, name="hook", kind="webhook", url=hook.url("/secret-path"))
    done = sent(sender, channel="hook", to=[], data={"ticket": 7})
    (seen,) = hook.seen
    stamp, signature = (part[part.index("=") + 1 :] for part in
                        seen.headers["toolcrib-signature"].split(","))  # fmt: skip
    expected = hmac.new(key.encode(), f"{stamp}.".encode() + seen.body, sha256).hexdigest()
    assert signature == expected
    assert json.loads(seen.body)["data"] == {"ticket": 7}
    message = message_of(done)
    assert seen.headers["idempotency-key"] == str(message.pk)
    assert message.answer == "200 thanks for [credential]"


def test_sending_again_is_the_same_one(organization, sender, hook):
    channel(organization, name="hook", kind="webhook", url=hook.url("/secret-path"))
    message = message_of(sent(sender, channel="hook", to=[]))
    Message.objects.filter(pk=message.pk).update(state="unknown")
    message.refresh_from_db()
    outbox.deliver_message(message, {}, 10)
    first, second = (one.headers["idempotency-key"] for one in hook.seen)
    assert first == second
    outbox.deliver_message(message, {}, 10)
    assert len(hook.seen) == 2


@pytest.mark.part("calls")
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_bounce_that_is_reported_before_the_receiver_has_answered_stays(
    organization, sender, hook, status
):
    row, _ = channel(organization, name="hook", kind="webhook", url=hook.url("/secret-path"))

    def report_first(seen):
        with closing(connection):
            sent_as = seen.headers["idempotency-key"]
            outbox.record_bounce(channel=row, message_id=sent_as, reason="gone")
        return Reply(status)

    hook.replies["/secret-path"] = report_first
    done = sent(sender, channel="hook", to=[])
    assert message_of(done).state == "bounced"
    assert done.output is None or done.output["state"] == "bounced"


MATRICES, CALLS = pytest.mark.part("matrices"), pytest.mark.part("calls")


@pytest.mark.parametrize(
    ("status", "code", "state"),
    [
        (302, "MESSAGE_NOT_SENT", "failed"),
        pytest.param(400, "MESSAGE_NOT_SENT", "failed", marks=MATRICES),
        pytest.param(404, "MESSAGE_NOT_SENT", "failed", marks=MATRICES),
        (429, "MESSAGE_NOT_SENT", "failed"),
        pytest.param(503, "MESSAGE_NOT_SENT", "failed", marks=MATRICES),
        pytest.param(500, "OUTCOME_UNKNOWN", "unknown", marks=CALLS),
        pytest.param(502, "OUTCOME_UNKNOWN", "unknown", marks=CALLS),
        pytest.param(504, "OUTCOME_UNKNOWN", "unknown", marks=CALLS),
    ],
)
def test_a_receiver_that_refuses_fails_and_one_that_may_have_taken_it_leaves_it_unknown(
    organization, sender, hook, status, code, state
):
    hook.replies["/secret-path"] = Reply(status, body=b"no")
    channel(organization, name="hook", kind="webhook", url=hook.url("/secret-path"))
    done = sent(sender, channel="hook", to=[])
    assert (done.error_code, message_of(done).state) == (code, state)


def test_a_receiver_that_hangs_up_leaves_the_outcome_unknown(organization, sender, hook):
    hook.replies["/secret-path"] = Raw([])
    channel(organization, name="hook", kind="webhook", url=hook.url("/secret-path"))
    done = sent(sender, channel="hook", to=[])
    assert (done.error_code, message_of(done).state) == ("OUTCOME_UNKNOWN", "unknown")
    assert "secret-path" not in done.error_message + message_of(done).answer


def test_a_chat_gets_text_without_mentions(organization, sender, hook):
    channel(organization, name="chat", kind="slack", url=hook.url("/secret-path"))
    sent(sender, channel="chat", to=[], body="<!channel> & co")
    assert json.loads(hook.seen[0].body) == {"text": "*Hello*\n&lt;!channel&gt; &amp; co"}


def test_an_inbox_is_one_persons(organization, sender):
    ada, eve = factories.person(organization), factories.person(organization)
    channel(organization, name="desk", kind="inbox", recipients=[ada.username])
    done = sent(sender, channel="desk", to=[ada.username])
    assert done.output["state"] == "sent"
    assert [item.message.subject for item in InboxItem.objects.filter(user=ada)] == ["Hello"]
    assert sent(sender, channel="desk", to=[eve.username]).error_code == "RECIPIENT_NOT_ALLOWED"


def test_secrets_are_sealed_and_never_shown(organization):
    row, key = channel(organization, **MAIL, port=25, username="crib", password="swordfish")
    kept = MessageChannel.objects.get(pk=row.pk)
    assert b"swordfish" not in bytes(kept.sealed) and key.encode() not in bytes(kept.sealed)
    assert message_channels.channel_fields(kept)["password"] == "…"
    assert message_channels.channel_secrets(kept) == {"password": "swordfish", "key": key}


def test_a_password_does_not_follow_to_another_server(organization):
    row, _ = channel(organization, **MAIL, port=25, username="crib", password="swordfish")
    with pytest.raises(Malformed):
        message_channels.change_channel(
            row=row, changes={"host": "evil.example"}, by=factories.actor(organization)
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "pigeon"},
        {"host": "x y"},
        {"port": 0},
        {"port": 10**30},
        {"recipients": ["nobody"]},
        {"recipients": ["a@b\r\nc"]},
        {"body_template": "{{ secret }}"},
        {"body_template": "{% set x = 1 %}"},
        {"security": ["tls"]},
        {"password": "alone"},
        {"sender": "a\r\nb@example.com"},
        {"url": "https://x.example/"},
        {"name": "a/b"},
        {"most_an_hour": True},
    ],
)
def test_what_is_no_channel_is_refused_field_by_field(organization, wrong):
    with pytest.raises(Malformed) as refusal:
        channel(organization, **(MAIL | {"port": 25} | wrong))
    assert {flaw["field"] for flaw in refusal.value.details["errors"]} & wrong.keys()


def test_executions_are_counted_once(organization, sender, office):
    channel(organization, **MAIL, port=office.port)
    done = sent(sender, channel="post")
    assert Execution.objects.get(pk=done.pk).attempt == 1
    assert Message.objects.filter(organization=organization).count() == 1
