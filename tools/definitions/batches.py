"""Parses the inputs of a batch, in any form: validation by the tool's schema may have been switched
off."""

from typing import Any, NamedTuple

from tools.definitions import references

MOST_INPUTS = 1_000
MOST_NAME = 128


class BatchInput(NamedTuple):
    tool_name: str
    parameters: dict[str, Any]


def inputs_of(parameters: dict[str, Any]) -> list[BatchInput]:
    """In their order. Raises `ValueError`, in words for the caller."""
    inputs = parameters.get("inputs")
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MOST_INPUTS:
        raise ValueError(f"A batch has 1 to {MOST_INPUTS} inputs.")
    return [_input(number, one) for number, one in enumerate(inputs)]


def inputs_as_sent(resolved: dict[str, Any], sent: dict[str, Any]) -> list[BatchInput]:
    """The same with references kept in each input's parameters, so that its call records what it
    refers to; the resolved value where a reference is more than a part of the parameters. Raises
    `ValueError`."""
    inputs, raw = inputs_of(resolved), sent.get("inputs")
    if not isinstance(raw, list) or len(raw) != len(inputs):
        return inputs
    return [_as_sent(one, written) for one, written in zip(inputs, raw, strict=True)]


def _as_sent(one: BatchInput, written: Any) -> BatchInput:
    parameters = written.get("parameters") if isinstance(written, dict) else None
    if not isinstance(parameters, dict) or references.MARK in parameters:
        return one
    return one._replace(parameters=parameters)


def _input(number: int, one: object) -> BatchInput:
    if not isinstance(one, dict):
        raise ValueError(f"inputs.{number} must be an object.")
    name, parameters = one.get("tool_name"), one.get("parameters")
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME:
        raise ValueError(f"inputs.{number}.tool_name must have 1 to {MOST_NAME} characters.")
    if not isinstance(parameters, dict):
        raise ValueError(f"inputs.{number}.parameters must be an object.")
    return BatchInput(name, parameters)
