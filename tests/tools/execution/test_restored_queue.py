"""A restored database contains calls that ran after its backup: no worker claims one of them."""

import shutil
from datetime import UTC, datetime

import pytest

from audit.log import anchors, checkpoints, key_files
from audit.log.checkpoints import CheckpointStatement
from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tests.tools.execution.workers import stopped, worker
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed")


@pytest.fixture
def published(crib, organization, settings, tmp_path):
    """An anchor file that only this worker reads: the organization's log once had more records than
    it has."""
    settings.ANCHORS_DIR = tmp_path / "anchors"
    shutil.copytree(crib.data / "anchors", settings.ANCHORS_DIR)
    log = organization.slug
    said = CheckpointStatement(key_files.log_origin(log), 10**6, bytes(32), datetime.now(UTC))
    anchors.append_anchor(log, checkpoints.sign_statement(said, *key_files.next_signers(log, "")))
    return settings.ANCHORS_DIR


@pytest.mark.part("faults")
def test_a_worker_asks_before_its_first_call_and_needs_no_sealer(
    crib, organization, agent, published
):
    factories.tool(organization)
    with stopped(crib):
        execution = factories.execution(agent)
        with worker(crib, AUDIT_ANCHORS_DIR=str(published)):
            over = Execution.objects.filter(pk=execution.pk).exclude(status="Pending")
            ended = until(over.first)
    assert (ended.status, ended.error_code) == ("PermissionDenied", "audit_halted")
    assert not AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.START").exists()
