"""Services that announce themselves take effect only after a person has approved the
announcement."""

import base64
import json
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from toolcrib_service.service import announcement_digest, signed_bytes
from tools.catalog.registry import registry
from tools.catalog.services import announcements
from tools.catalog.services.services import change_service, create_service
from tools.definitions.services import RESERVED_KEYS
from tools.errors import Conflict, Forbidden, InvalidDefinition, Refused
from tools.execution.admit import admit
from tools.models import Organization, Tool, ToolService

pytestmark = pytest.mark.django_db
TOOL = {"name": "tell-joke", "type": "tool-service", "description": "Tells one.", "service": "j"}
DESCRIPTOR = {"id": "j", "request-queue": "q", "response-queue": "r"}


class Author:
    """A service that announces itself with its own key."""

    def __init__(self, organization):
        self.organization, self.private = organization, Ed25519PrivateKey.generate()
        self.key = base64.b64encode(self.private.public_key().public_bytes_raw()).decode()

    def document(self, **fields):
        said = {
            "organization": self.organization.slug, "service": DESCRIPTOR, "groups": None,
            "tools": [TOOL],
        }  # fmt: skip
        return json.dumps(said | fields)

    def says(self, document=None, **fields):
        document = document if document is not None else self.document(**fields)
        signed = self.private.sign(signed_bytes(document))
        return announcements.hear(
            organization=self.organization, document=document, key=self.key,
            signature=base64.b64encode(signed).decode(),
        )  # fmt: skip


@pytest.fixture
def author(organization):
    return Author(organization)


def approved(author, by, **fields):
    row = author.says(**fields)
    return announcements.approve_service(row=row, digest=row.announced_digest, by=by)


def lease(row, seconds):
    until = timezone.now() + timedelta(seconds=seconds)
    announcements.note_lease(row=row, until=until if seconds > 0 else None)
    return ToolService.objects.get(pk=row.pk)


def refusal(agent, **fields):
    registry.forget()
    with pytest.raises(Refused) as caught:
        admit(factories.caller(agent), factories.call("tell-joke", **fields))
    return caught.value.code


def test_what_is_announced_waits_for_a_person(author):
    row = author.says()
    assert (row.status, row.digest, row.request_queue) == ("pending", "", "")
    assert not Tool.objects.filter(organization=author.organization, name="tell-joke").exists()
    assert AuditRecord.objects.filter(code="SERVICE.ANNOUNCE", subject="j").exists()


def test_approved_by_digest_its_tools_are_there_while_its_lease_is_renewed(author, actor, agent):
    row = approved(author, actor)
    assert (row.status, row.digest, row.request_queue) == ("approved", row.announced_digest, "q")
    assert refusal(agent) == "service_unavailable"
    row = lease(row, 10)
    registry.forget()
    assert admit(factories.caller(agent), factories.call("tell-joke")).status == "Pending"
    row = lease(row, 0)
    assert refusal(agent) == "service_unavailable"
    assert Tool.objects.get(organization=author.organization, name="tell-joke").status == "active"
    lease(row, 10)
    registry.forget()
    assert admit(factories.caller(agent), factories.call("tell-joke")).status == "Pending"
    codes = list(
        AuditRecord.objects.filter(subject="j", code__startswith="SERVICE.")
        .order_by("pk").values_list("code", flat=True)
    )  # fmt: skip
    assert codes == [
        "SERVICE.ANNOUNCE", "SERVICE.APPROVE", "SERVICE.OPEN", "SERVICE.CLOSE", "SERVICE.OPEN",
    ]  # fmt: skip


def test_only_a_change_of_its_lease_changes_the_catalog(author, actor):
    row = lease(approved(author, actor), 10)
    before = Organization.objects.get(pk=author.organization.pk).revision
    row = lease(row, 20)
    author.says()
    assert Organization.objects.get(pk=author.organization.pk).revision == before
    assert row.lease_until > timezone.now() + timedelta(seconds=15)


def test_another_digest_than_the_one_read_is_a_conflict(author, actor):
    row = author.says()
    read = row.announced_digest
    author.says(tools=[TOOL | {"description": "Sends mail to everybody."}])
    with pytest.raises(Conflict) as caught:
        announcements.approve_service(row=row, digest=read, by=actor)
    assert caught.value.code == "digest_differs"
    assert not Tool.objects.filter(organization=author.organization, name="tell-joke").exists()


def test_a_change_is_pending_again_and_the_old_one_holds_while_it_is_served(author, actor):
    row = lease(approved(author, actor), 10)
    changed = author.says(tools=[TOOL | {"description": "Another."}])
    assert (changed.status, changed.digest, changed.serving) == ("pending", row.digest, True)
    assert lease(changed, 0).closed_because
    fresh = approved(author, actor, tools=[TOOL | {"description": "Another."}])
    assert (fresh.digest, fresh.serving) == (fresh.announced_digest, False)
    tool = Tool.objects.get(organization=author.organization, name="tell-joke")
    assert tool.version.definition["description"] == "Another."


def test_a_return_to_the_approved_document_needs_no_approval(author, actor):
    row = approved(author, actor)
    author.says(tools=[])
    back = author.says()
    assert (back.status, back.digest) == ("approved", row.digest)


def test_who_has_not_seen_a_rejection_does_not_undo_it(author, actor):
    row = author.says()
    announcements.reject_service(row=row, digest=row.announced_digest, by=actor)
    with pytest.raises(Conflict) as caught:
        announcements.approve_service(row=row, digest=row.announced_digest, by=actor)
    assert caught.value.code == "service_rejected"
    row = announcements.approve_service(
        row=row, digest=row.announced_digest, by=actor, reconsider=True
    )
    assert row.status == "approved"


def test_a_rejected_announcement_stays_so_and_closes_what_it_had(author, actor, agent):
    row = lease(approved(author, actor), 10)
    row = announcements.reject_service(row=row, digest=row.digest, by=actor, reason="no")
    assert (row.status, row.digest) == ("rejected", "")
    assert refusal(agent) == "service_unavailable"
    assert author.says().status == "rejected"


def test_a_name_belongs_to_the_key_that_had_it_first(author, actor, organization):
    row = author.says()
    with pytest.raises(Forbidden) as caught:
        Author(organization).says()
    assert caught.value.code == "service_key_differs"
    row.refresh_from_db()
    assert row.key == author.key


def test_a_service_that_people_wrote_is_nobodys_to_announce(author, actor, organization):
    create_service(organization=organization, service=DESCRIPTOR, by=actor)
    with pytest.raises(Forbidden):
        author.says()


def test_what_it_says_of_itself_is_not_changed_by_others(author, actor):
    row = approved(author, actor)
    with pytest.raises(Conflict):
        change_service(row=row, changes={"request_queue": "other"}, by=actor)
    assert change_service(row=row, changes={"default_groups": ["a"]}, by=actor).default_groups == [
        "a"
    ]


def test_a_tool_stands_no_wider_than_was_signed_for(author, actor):
    row = approved(
        author, actor, groups=["fun"], tools=[TOOL, TOOL | {"name": "b", "group": ["x"]}]
    )
    groups = {
        tool.name: tool.version.definition["group"]
        for tool in Tool.objects.filter(organization=author.organization, type="tool-service")
    }
    assert groups == {"tell-joke": ["fun"], "b": ["x"]}
    change_service(row=row, changes={"default_groups": ["default"]}, by=actor)
    registry.forget()
    place = Organization.objects.get(pk=author.organization.pk)
    snapshot = registry.snapshot(place.pk, place.revision)
    assert snapshot.groups_of(snapshot.tools["tell-joke"]) == {"fun"}


def test_a_tool_of_another_owner_is_not_taken_over(author, actor, organization):
    factories.tool(organization, "tell-joke")
    row = author.says()
    with pytest.raises(Conflict):
        announcements.approve_service(row=row, digest=row.announced_digest, by=actor)
    row.refresh_from_db()
    assert (row.status, row.digest) == ("pending", "")


def test_a_queue_of_another_service_is_not_taken_over(author, actor, organization):
    create_service(organization=organization, service=DESCRIPTOR | {"id": "other"}, by=actor)
    row = author.says()
    with pytest.raises(Conflict) as caught:
        announcements.approve_service(row=row, digest=row.announced_digest, by=actor)
    assert caught.value.code == "queue_taken"


def test_tools_that_are_announced_no_more_are_switched_off_and_kept(author, actor):
    approved(author, actor, tools=[TOOL, TOOL | {"name": "b"}])
    approved(author, actor)
    assert Tool.objects.get(organization=author.organization, name="b").status == "disabled"


def test_a_signature_by_another_key_is_refused(author):
    document = author.document()
    other = Ed25519PrivateKey.generate().sign(signed_bytes(document))
    for signature in (base64.b64encode(other).decode(), "", "ä", "AAAA", "%%"):
        with pytest.raises(InvalidDefinition):
            announcements.hear(
                organization=author.organization, document=document, key=author.key,
                signature=signature,
            )  # fmt: skip
    with pytest.raises(InvalidDefinition):
        announcements.hear(
            organization=author.organization, document=document, key="AAAA", signature="AAAA"
        )


HOSTILE = [
    "", "{", "[]", "null", '"x"', "[" * 100_000, '{"a":' * 100_000, '{"a": 1e999}', '{"a": NaN}',
    '{"service": 9007199254740993}', '{"a": "\\u0000"}', '{"a": "\\ud800"}', '{"a": 1, "a": 2}',
    "x" * 300_000, "\x00", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("document", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_a_hostile_announcement_ends_only_itself(author, document):
    with pytest.raises((InvalidDefinition, ValueError)):
        author.says(document)
    assert author.says().status == "pending"


@pytest.mark.parametrize(
    "fields",
    [
        {"organization": "another"}, {"extra": 1}, {"service": None}, {"service": {"id": "j"}},
        {"groups": "default"}, {"groups": [""]}, {"groups": [3]}, {"tools": {}},
        {"tools": [TOOL] * 2}, {"tools": [TOOL | {"service": "other"}]}, {"tools": [None]},
        {"tools": [factories.definition()]}, {"tools": [TOOL | {"style": "pun"}]},
        {"tools": [TOOL | {"name": f"t{at}"} for at in range(60)]},
    ],
    ids=str,
)  # fmt: skip
def test_every_part_of_an_announcement_is_read(author, fields):
    with pytest.raises(InvalidDefinition):
        author.says(**fields)
    assert ToolService.objects.filter(organization=author.organization).count() == 0


def test_a_crowd_of_newcomers_is_turned_away(author, monkeypatch):
    monkeypatch.setattr(announcements, "MOST_PENDING", 2)
    for at in range(2):
        author.says(service=DESCRIPTOR | {"id": f"j{at}"}, tools=[])
    with pytest.raises(Forbidden):
        author.says(service=DESCRIPTOR | {"id": "j9"}, tools=[])


def test_the_digest_is_of_the_bytes_that_were_signed(author):
    assert author.says().announced_digest == announcement_digest(author.document())
    assert "service" in RESERVED_KEYS
