"""A custom tool of an organization: real Python, inside the sandbox."""

import os

import pytest

from tests import factories
from tools.execution.pipeline import perform
from tools.models import Execution

CSV = """
import csv, io, statistics
from toolcrib import ToolError

def main(parameters):
    rows = list(csv.DictReader(io.StringIO(parameters["text"])))
    column = parameters["column"]
    if not rows or column not in rows[0]:
        raise ToolError("COLUMN_MISSING", f"There is no column {column}.")
    values = [float(row[column]) for row in rows]
    return {"rows": len(rows), "mean": statistics.fmean(values), "largest": max(values)}
"""
TABLE = 'city,people\\n"Berlin, Mitte",3.5\\nKöln,1.5\\n"Quote "" inside",1\\n'.replace("\\n", "\n")
PARAMETERS = [
    {"name": "text", "type": "String", "description": "The table as CSV.", "required": True},
    {"name": "column", "type": "String", "description": "Which column.", "default": "people"},
]
OUTPUT = {
    "type": "object",
    "properties": {"rows": {"type": "integer"}, "mean": {"type": "number"}},
    "required": ["rows", "mean", "largest"],
}


@pytest.fixture
def averages(committed, organization, agent):
    factories.tool(
        organization, "averages", implementation={"source": CSV}, parameters=PARAMETERS,
        output_schema=OUTPUT, delivery="pure",
    )  # fmt: skip

    def call(**parameters):
        execution = factories.execution(agent, "averages", **parameters)
        perform(execution.pk)
        return Execution.objects.get(pk=execution.pk)

    return call


def test_a_custom_tool_reads_a_real_table(averages):
    assert averages(text=TABLE).output == {"rows": 3, "mean": 2.0, "largest": 3.5}


def test_a_custom_tool_says_what_was_wrong_in_its_own_words(averages):
    done = averages(text=TABLE, column="area")
    assert (done.status, done.error_code) == ("Failed", "COLUMN_MISSING")
    assert done.error_message == "There is no column area."


ESCAPES = {
    "passwords": "open('/etc/passwd').read()",
    "files of the product": "__import__('os').listdir('/work')",
    "network": "__import__('socket').create_connection(('127.0.0.1', 22), 1)",
    "names": "__import__('socket').gethostbyname('example.com')",
    "Django": "__import__('django').VERSION",
}


@pytest.mark.parametrize("expression", ESCAPES.values(), ids=ESCAPES)
def test_a_custom_tool_sees_nothing_of_the_host(committed, organization, agent, expression):
    factories.tool(
        organization, "spy", implementation={"source": f"def main(p):\n    return {expression}"}
    )
    execution = factories.execution(agent, "spy")
    perform(execution.pk)
    done = Execution.objects.get(pk=execution.pk)
    assert (done.status, done.output) == ("Failed", None)


def test_a_custom_tool_inherits_no_environment(committed, organization, agent):
    source = "import os\ndef main(p):\n    return sorted(os.environ)"
    factories.tool(organization, "spy", implementation={"source": source})
    execution = factories.execution(agent, "spy")
    perform(execution.pk)
    names = set(Execution.objects.get(pk=execution.pk).output)
    assert "TOOLCRIB_DATA" in os.environ and "TOOLCRIB_DATA" not in names
    assert len(names) < 12, names
