"""A call that a person makes by hand: as whom, in which groups and in which state."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.datastructures import MultiValueDict

from tools.accounts.callers import caller_at_playground
from tools.accounts.user_permissions import may
from tools.authorization.listings import visible_tool
from tools.authorization.pins import snapshot_for
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.definitions.vocabulary import ToolType
from tools.errors import ToolcribError
from tools.policy.questions import DEFAULT_STATE
from tools.web.form_fields import LONGEST_NAME, Checkboxes, choices
from tools.web.forms import ActionForm
from tools.web.pages import PageRequest, address_of


@dataclass(frozen=True)
class PlaygroundContext:
    """The user of the playground, and the caller that they call as."""

    person: Caller
    agent: str
    caller: Caller
    snapshot: Snapshot

    @property
    def viewer(self) -> Caller:
        """Whose tools are offered: the user's if they may view every tool, else the caller's."""
        return self.person if may(self.person, "view_tool") else self.caller

    def tool(self, name: str) -> CatalogTool:
        """Raises `NotFound`, also for a tool that the viewer may not see."""
        return visible_tool(self.viewer, self.snapshot, name)


@dataclass(frozen=True)
class CallChoices:
    """What a form offers, and what of it is chosen at first."""

    groups: list[str]
    offered: list[str]
    state: str
    states: list[str]


class GroupsField(forms.MultipleChoiceField):
    """Any group may be named: the pipeline refuses those that were not granted."""

    def valid_value(self, value: str) -> bool:
        return True


class CallForm(ActionForm):
    """Its action is the call. Errors of parameters that are no fields of it are `flaws`."""

    group = GroupsField(label="Groups", required=False, widget=Checkboxes({"class": "mono"}))
    other_group = forms.CharField(label="Another group", max_length=LONGEST_NAME, required=False)
    state = forms.CharField(
        max_length=LONGEST_NAME, required=False, widget=forms.TextInput({"list": "states"})
    )
    data: MultiValueDict[str, Any]
    refusal: ToolcribError | None = None
    flaws: list[dict[str, str]]

    def __init__(
        self,
        request: PageRequest,
        playground: PlaygroundContext,
        usual: CallChoices,
        initial: dict[str, Any] | None = None,
    ) -> None:
        self.playground, self.usual, self.flaws = playground, usual, []
        chosen = {"group": usual.groups, "state": usual.state}
        super().__init__(request, initial=chosen | (initial or {}))

    def build(self) -> None:
        self.data = self.data.copy()  # what a request sent cannot be changed
        self._offer([*self.usual.offered, *(self["group"].value() or ())])

    @property
    def requested_groups(self) -> list[str]:
        named = [*(self["group"].value() or ()), self["other_group"].value() or ""]
        cleaned = (str(name).strip()[:LONGEST_NAME] for name in named)
        return list(dict.fromkeys(filter(None, cleaned)))

    @property
    def requested_state(self) -> str:
        return str(self["state"].value() or "").strip()[:LONGEST_NAME] or DEFAULT_STATE

    def refuse(self, refusal: ToolcribError) -> None:
        self.refusal = refusal
        super().refuse(refusal)

    def change_caller(self) -> None:
        """Show the form with the groups of another caller."""
        self.show_typed(group=self.usual.groups, other_group="")
        self._offer(self.usual.offered)

    def show_typed(self, **instead: Any) -> None:
        """Show the form as it was filled in, which is not checked: nothing is to be called yet."""
        self.initial = {name: self[name].value() for name in self.fields} | instead
        self.is_bound = False
        self._bound_fields_cache.clear()  # type: ignore[attr-defined]

    def _offer(self, groups: list[str]) -> None:
        self.fields["group"].choices = choices(dict.fromkeys(groups))  # type: ignore[attr-defined]


def playground_context(request: PageRequest, agent: str) -> PlaygroundContext:
    """Raises `NotFound` for an agent that the user may not impersonate."""
    caller = caller_at_playground(request.caller, agent, source_ip=address_of(request))
    return PlaygroundContext(request.caller, agent, caller, snapshot_for(caller))


def tool_choices(tool: CatalogTool, playground: PlaygroundContext) -> CallChoices:
    """The usual groups and state of the caller for the tool."""
    caller, snapshot = playground.caller, playground.snapshot
    effective = sorted(snapshot.groups_of(tool))
    groups = default_groups(tool, caller, snapshot)
    others = caller.granted_groups.union(groups).difference(effective)
    states = sorted(tool.definition.states - {WILDCARD})
    return CallChoices(
        groups, effective + sorted(others), default_state(tool), states or [DEFAULT_STATE]
    )


def default_group(tool: CatalogTool, caller: Caller, snapshot: Snapshot) -> list[str]:
    """A granted group of the tool: its own groups come before inherited ones."""
    own = sorted(snapshot.own_groups(tool))
    every = [*own, *sorted(snapshot.groups_of(tool))]
    granted = [name for name in every if name in caller.granted_groups]
    return (granted or own)[:1] or ([WILDCARD] if caller.is_superuser else [])


def default_groups(tool: CatalogTool, caller: Caller, snapshot: Snapshot) -> list[str]:
    """Also groups for a chain's steps, which are called with the groups of the chain's call."""
    granted, every = caller.granted_groups, WILDCARD in caller.granted_groups
    steps = [
        name
        for step in _chain_steps(tool, snapshot)
        for name in default_group(step, caller, snapshot)
        if every or name in granted
    ]
    return list(dict.fromkeys([*default_group(tool, caller, snapshot), *steps]))


def default_state(tool: CatalogTool) -> str:
    states = sorted(tool.definition.states - {WILDCARD})
    return states[0] if states and DEFAULT_STATE not in states else DEFAULT_STATE


def _chain_steps(tool: CatalogTool, snapshot: Snapshot) -> list[CatalogTool]:
    """The tools that a chain calls, directly or through other chains."""
    found: dict[str, CatalogTool] = {}
    ahead = [tool]
    while ahead:
        one = ahead.pop(0)
        if one.definition.type != ToolType.CHAIN:
            continue
        named = [snapshot.tool(step.tool_name) for step in one.definition.chain.steps]
        new = {step.name: step for step in named if step and step.name not in found}
        found |= new
        ahead += new.values()
    return list(found.values())
