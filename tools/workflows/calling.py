"""`call_tool`: one tool by its name, for agents that do not load the definitions of all.

The call it makes is the call: what it costs, whether a person is asked, how it ends.
"""

from tools.definitions.results import Status
from tools.execution.composing import CannotGoOn, Composition, Made
from tools.execution.composition import Waiting
from tools.execution.context import Result

PLACE = "call"


def run_call_turn(view: Composition) -> Result | Waiting:
    name, parameters = view.parameters.get("tool_name"), view.parameters.get("parameters")
    if not isinstance(name, str) or not isinstance(parameters, dict):
        raise CannotGoOn("PARAMETERS_WRONG", "tool_name is a text and parameters an object.")
    asked = view.asked.get("parameters")
    made = view.begin(
        PLACE, name, asked if isinstance(asked, dict) else parameters, references=True
    )
    if made.open:
        return Waiting()
    return _call_result(view, made)


def _call_result(view: Composition, made: Made) -> Result:
    identifier = str(made.id) if made.id else None
    if made.succeeded:
        output = {"execution_id": identifier, "output": view.output(PLACE)}
        return Result(Status.SUCCESS, output={"tool_name": made.tool_name, **output})
    invalid = made.status == Status.VALIDATION_ERROR  # that of the call that was made, not of this
    return Result(
        Status.FAILED if invalid else made.status,
        error_code=made.error_code,
        error_message=made.error_message,
        error_details={**(made.error_details or {}), "call": identifier},
    )
