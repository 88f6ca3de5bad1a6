"""What leaves as a file is what was sealed, harms no spreadsheet, and is on record."""

import csv
import io
import json
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

import orjson
import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from audit.events import Event
from audit.export import export
from audit.log import checkpoints, key_files, merkle
from audit.models import AuditLeaf, AuditRecord
from audit.records import record_search
from tests import factories
from tests.audit.evidence import BY, HERE, call, database_now, events, sealed

ALL = record_search.RecordSearch(HERE)


def exported_file(name, wanted=ALL):
    return b"".join(export.export_parts(wanted, name))


def test_a_line_is_what_its_leaf_was_made_of(ledger):
    sealed(5)
    lines = exported_file("jsonl").splitlines()
    hashes = AuditLeaf.objects.order_by("index").values_list("hash", flat=True)
    assert [merkle.leaf_hash(line) for line in lines] == [bytes(one) for one in hashes]


def test_an_export_longer_than_a_batch_holds_everything_once_in_order(ledger, monkeypatch):
    monkeypatch.setattr(export, "BATCH", 3)
    made = sealed(10)
    ids = [orjson.loads(line)["record"]["id"] for line in exported_file("jsonl").splitlines()]
    assert ids == [str(one) for one in made]


def test_filters_narrow_an_export(ledger):
    made = sealed(3)
    row = AuditRecord.objects.get(pk=made[1])
    wanted = record_search.replace_filters(
        ALL, since=row.occurred_at, until=row.occurred_at + timedelta(0, 0, 1)
    )
    assert str(made[1]) in exported_file("jsonl", wanted).decode()
    assert len(exported_file("jsonl", wanted).splitlines()) == 1


def test_what_is_written_after_an_export_began_is_not_part_of_it(ledger, monkeypatch):
    monkeypatch.setattr(export, "BATCH", 2)
    sealed(3)
    parts = export.export_parts(ALL, "jsonl")
    first = next(parts) + next(parts)
    call(text="late")
    assert len((first + b"".join(parts)).splitlines()) == 3


def test_csv_has_a_header_and_reads_back(ledger):
    sealed(2)
    call(reason="=1+1", details={"note": 'quo"te, line\nbreak'})
    rows = [*csv.DictReader(io.StringIO(exported_file("csv").decode(), newline=""))]
    assert [row["log_index"] for row in rows] == ["0", "1", ""]
    assert rows[2]["reason"] == "'=1+1"
    assert json.loads(rows[2]["details"])["note"] == 'quo"te, line\nbreak'


BEGINNINGS = ["=", "+", "-", "@", "\t", "\r", "\n", " =", ' "=', "'=", "\u00a0@", "＝", " \t"]


@pytest.mark.parametrize("begin", BEGINNINGS, ids=ascii)
def test_no_cell_is_a_formula(begin):
    assert export.escape_formula(f"{begin}cmd|' /C calc'!A0").startswith("'")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
                min_size=1, max_size=5))  # fmt: skip
def test_every_cell_comes_back_but_for_the_apostrophe(cells):
    line = export.csv_row(cells).decode()
    read = next(csv.reader(io.StringIO(line, newline=""), strict=True), [""])
    assert read == [export.escape_formula(cell) for cell in cells] or cells == [""]


def test_ocsf_names_who_what_where_and_vouches_for_it(ledger):
    (made,) = sealed(1)
    event = orjson.loads(exported_file("ocsf"))
    leaf = AuditLeaf.objects.get(record_id=made)
    assert (event["class_uid"], event["type_uid"], event["category_uid"]) == (6003, 600399, 6)
    assert event["metadata"]["profiles"] == ["record_integrity"]
    assert event["actor"]["user"]["name"] == "magpie"
    assert event["src_endpoint"] == {"ip": "10.1.2.3"}
    assert event["api"]["operation"] == "TOOL.START"
    assert abs(event["time"] - database_now().timestamp() * 1000) < 60_000
    attestation = event["attestation"]
    assert attestation["chain_uid"] == key_files.log_origin(HERE)
    assert attestation["fingerprint"]["value"] == bytes(leaf.hash).hex()
    assert merkle.leaf_hash(event["raw_data"].encode()) == bytes(leaf.hash)
    assert checkpoints.read_note(event["unmapped"]["checkpoint"]).size >= 1


def test_ocsf_vouches_for_nothing_that_is_not_sealed(ledger):
    call()
    event = orjson.loads(exported_file("ocsf"))
    assert "attestation" not in event
    assert event["metadata"]["profiles"] == []


def test_an_export_is_on_record_before_its_first_byte(ledger):
    sealed(1)
    stream = export.begin_export(record_search.replace_filters(ALL, code="TOOL."), "csv", BY)
    (export_record,) = events(Event.AUDIT_EXPORT)
    assert (export_record.actor, export_record.subject, export_record.source_ip) == (
        "magpie",
        "csv",
        "10.1.2.3",
    )
    assert export_record.details["filters"] == {"code": "TOOL."}
    stream.close()


def test_no_more_exports_at_once_than_the_process_bears(ledger):
    open_ones = [export.ExportStream(ALL, "jsonl") for _ in range(export.ORGANIZATION_CONCURRENT)]
    with pytest.raises(export.TooManyExports):
        export.begin_export(ALL, "jsonl", BY)
    assert events(Event.AUDIT_EXPORT) == []
    others = [replace(ALL, organization=f"other-{number}") for number in range(3)]
    open_ones += [export.ExportStream(one, "jsonl") for one in others[:2]]
    assert len(open_ones) == export.MOST_CONCURRENT
    with pytest.raises(export.TooManyExports):
        export.ExportStream(others[2], "jsonl")
    for one in open_ones:
        one.close()
        one.close()
    export.ExportStream(ALL, "jsonl").close()


def test_a_file_has_a_signed_manifest_beside_it(ledger, tmp_path):
    sealed(4)
    file = tmp_path / "e.jsonl"
    call_command("audit_export", str(file), organization=HERE, verbosity=0)
    note = (tmp_path / "e.jsonl.manifest").read_text()
    fields = dict(line.split(" ", 1) for line in note.split("\n\n")[0].splitlines()[1:])
    signer = key_files.manifest_signer(HERE)
    assert checkpoints.signed_by(note, {signer.key_id: signer.public}) == [signer.key_id]
    assert fields["sha256"] == sha256(file.read_bytes()).hexdigest()
    assert (fields["records"], fields["indexes"]) == ("4", "0-3")
    assert fields["size"] == str(file.stat().st_size)
    assert events(Event.AUDIT_EXPORT)[0].details["sha256"] == fields["sha256"]
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("options", [{"since": "x"}, {"execution": "x"}, {"q": "---"}], ids=str)
def test_a_wrong_filter_of_the_command_is_said(ledger, tmp_path, options):
    with pytest.raises(CommandError, match=r"must|is not"):
        call_command("audit_export", str(tmp_path / "e"), organization=HERE, **options)
    assert not (tmp_path / "e").exists()


def test_the_api_streams_an_export_of_the_callers_organization(committed, admin_api, agent):
    elsewhere = factories.organization(f"{agent.organization.slug}x")
    answer = admin_api.get("/audit/export?format=jsonl&code=ADMIN.")
    lines = [orjson.loads(line) for line in b"".join(answer).splitlines()]
    answer.close()
    assert {line["record"]["organization"] for line in lines} == {agent.organization.slug}
    assert answer["Content-Disposition"].startswith('attachment; filename="audit-')
    assert elsewhere.slug not in str(lines)


@pytest.mark.parametrize("query", ["format=xml", "format=", "since=x", "q=%00"])
def test_a_wrong_export_is_400(admin_api, query):
    assert admin_api.get(f"/audit/export?{query}").status_code == 400


def test_an_export_beyond_what_is_served_at_once_is_503(admin_api, organization):
    own = replace(ALL, organization=organization.slug)
    open_ones = [export.ExportStream(own, "jsonl") for _ in range(export.ORGANIZATION_CONCURRENT)]
    answer = admin_api.get("/audit/export")
    for one in open_ones:
        one.close()
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer["Retry-After"]) > 0
