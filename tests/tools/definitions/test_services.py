"""Service descriptors of specification S2: every invalid field is named."""

import json
from pathlib import Path

import pytest

from tests.crib import CHECKOUT
from tools.definitions.dialects.import_references import KnownReferences, resolve_references
from tools.definitions.services import config_flaws, read_service
from tools.definitions.tool import read_definition
from tools.errors import InvalidDefinition

ITEMS = json.loads(Path(CHECKOUT, "examples/joke-service.json").read_text())
JOKES, TELL = ITEMS["tool-service/joke-service"], ITEMS["tool/tell-joke"]


def flaws_of(raw, read=read_service):
    with pytest.raises(InvalidDefinition) as caught:
        read(raw)
    return {flaw["field"]: flaw["message"] for flaw in caught.value.details["errors"]}


def test_queue_names_are_kept_to_the_letter():
    said = read_service(JOKES)
    assert said == {
        "id": "joke-service",
        "request_queue": "non-persistent://tg/request/joke",
        "response_queue": "non-persistent://tg/response/joke",
        "config_params": [{"name": "style", "required": False}],
        "default_groups": None,
    }


def test_a_service_needs_no_parameters():
    assert read_service({k: v for k, v in JOKES.items() if k != "config-params"}) == {
        **read_service(JOKES), "config_params": [],
    }  # fmt: skip


def test_every_wrong_field_is_named():
    raw = {
        "id": "no spaces", "request-queue": "", "config-params": [
            {"name": "style", "required": "yes"}, {"name": "style"}, {"nam": "x"}, 3,
        ], "states": [], "default-groups": [""],
    }  # fmt: skip
    assert set(flaws_of(raw)) == {
        "id", "request_queue", "response_queue", "config_params[0].required",
        "config_params[1].name", "config_params[2].nam", "config_params[2].name",
        "config_params[3]", "states", "default_groups",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["type", "name", "description", "service", "arguments", "group", "state", "states",
     "available-in-states", "applicable-states", "requiredPermissions", "implementation",
     "metadata", "config", "delivery"],
)  # fmt: skip
def test_a_key_of_descriptors_is_no_parameter(name):
    assert (
        "reserved"
        in flaws_of({**JOKES, "config-params": [{"name": name}]})["config_params[0].name"]
    )


@pytest.mark.parametrize(
    "raw",
    [None, [], "x", {"id": 1}, {"id": "a\x00"}, {"config-params": {}}, {"id": "\ud800"},
     {"id": "a", "ID": 2**60}, {"config_params": [], "config-params": []}],
)  # fmt: skip
def test_what_is_no_descriptor_is_refused(raw):
    with pytest.raises(InvalidDefinition):
        read_service(raw)


def test_flat_keys_of_a_tool_are_its_services_parameters():
    known = KnownReferences(services={"joke-service": read_service(JOKES)["config_params"]})
    raw, flaws = resolve_references(TELL, known)
    canonical = read_definition(raw)
    assert flaws == []
    assert canonical["implementation"] == {"service": "joke-service", "config": {"style": "pun"}}
    assert [one["type"] for one in canonical["parameters"]] == ["String"]
    assert canonical["argument_validation"] == "off"  # ruling 13


def test_a_definition_names_its_service_and_sets_its_parameters():
    raw = {
        "name": "t", "type": "tool-service", "description": "d",
        "implementation": {"service": "no spaces", "config": [], "queue": "q"},
    }  # fmt: skip
    assert set(flaws_of(raw, read_definition)) == {
        "implementation.service", "implementation.config", "implementation.queue",
    }  # fmt: skip


def test_values_for_parameters_are_neither_missing_nor_beyond():
    params = [{"name": "collection", "required": True}, {"name": "style", "required": False}]
    assert config_flaws(params, {"collection": "c"}) == []
    assert {one["field"] for one in config_flaws(params, {"other": 1})} == {
        "implementation.config.collection", "implementation.config.other",
    }  # fmt: skip
