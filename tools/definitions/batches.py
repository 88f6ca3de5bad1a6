"""Parses the inputs of a batch, in any form: validation by the tool's schema may have been switched
off."""

from typing import Any, NamedTuple

from tools.definitions import references

MOST_INPUTS = 1_000
LONGEST_TOOL_NAME = 128


class BatchInput(NamedTuple):
    tool_name: str
    parameters: dict[str, Any]


def parse_batch_inputs(parameters: dict[str, Any]) -> list[BatchInput]:
    """In their order. Raises `ValueError`, in words for the caller."""
    inputs = parameters.get("inputs")
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MOST_INPUTS:
        raise ValueError(f"A batch has 1 to {MOST_INPUTS} inputs.")
    return [_parse_batch_input(number, one) for number, one in enumerate(inputs)]


def batch_inputs_with_references(
    resolved: dict[str, Any], sent: dict[str, Any]
) -> list[BatchInput]:
    """The same with references kept in each input's parameters, so that its call records what it
    refers to; the resolved value where a reference is more than a part of the parameters. Raises
    `ValueError`."""
    inputs, raw = parse_batch_inputs(resolved), sent.get("inputs")
    if not isinstance(raw, list) or len(raw) != len(inputs):
        return inputs
    return [_with_references(one, written) for one, written in zip(inputs, raw, strict=True)]


def _with_references(one: BatchInput, written: Any) -> BatchInput:
    parameters = written.get("parameters") if isinstance(written, dict) else None
    if not isinstance(parameters, dict) or references.MARK in parameters:
        return one
    return one._replace(parameters=parameters)


def _parse_batch_input(number: int, one: object) -> BatchInput:
    if not isinstance(one, dict):
        raise ValueError(f"inputs.{number} must be an object.")
    name, parameters = one.get("tool_name"), one.get("parameters")
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_TOOL_NAME:
        raise ValueError(
            f"inputs.{number}.tool_name must have 1 to {LONGEST_TOOL_NAME} characters."
        )
    if not isinstance(parameters, dict):
        raise ValueError(f"inputs.{number}.parameters must be an object.")
    return BatchInput(name, parameters)
