from tests import factories
from tools.execution.admit import admit
from tools.execution.perform import perform
from tools.models import Execution


def test_an_agent_reads_a_file(agent, files, committed):
    files("notes.txt", b"hello")
    call = factories.call("read_file", {"path": "notes.txt"}, group=["read-only"])
    execution = admit(factories.caller(agent), call)
    perform(execution.pk)
    assert Execution.objects.get(pk=execution.pk).output["content"] == "hello"
