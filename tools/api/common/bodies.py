"""Serializers of requests and responses: they validate shape and decide nothing."""

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers

from sandbox.spec import Backend, IsolationLevel
from tools.api.accounts.allowance_bodies import BudgetAnswer, BudgetBody, QuotaAnswer, QuotaBody
from tools.api.common.fields import (
    Duration,
    Flag,
    Items,
    Seconds,
    State,
    Strict,
    Text,
    Whole,
    texts,
)
from tools.catalog.bounds import MOST, MOST_BYTES, MOST_DAYS
from tools.catalog.sandbox.hosts import MOST_RULES
from tools.definitions.callers import Scope
from tools.definitions.licenses import LicenseState
from tools.definitions.results import Status
from tools.definitions.vocabulary import (
    ArgumentValidation,
    Category,
    Delivery,
    ParameterType,
    ToolType,
)
from tools.limits.allowances import MOST_QUOTAS
from tools.models import Resolution
from tools.models.tool import Origin, ToolStatus
from tools.web.pagination import PageReference


def one_of(kind: Iterable[str], **options: Any) -> serializers.ChoiceField:
    """A member of a closed set."""
    return serializers.ChoiceField(choices=[str(one) for one in kind], **options)


LEVELS = [str(level) for level in IsolationLevel]
STATUSES = [str(status) for status in Status]
TYPES = [str(kind) for kind in ToolType]


class OptionsBody(Strict):
    timeout = Duration(required=False, help_text="At most the tool's own, such as PT10S.")
    require_confirmation = Flag(required=False, default=False)
    wait_s = Seconds(required=False, default=30, min_value=0, max_value=60)
    # The field has the name of an attribute of DRF's serializers, here and where noted below.
    context = serializers.DictField(  # type: ignore[assignment]
        required=False, help_text="Never read by a gate."
    )
    execution_id = Text(required=False, max_length=200, help_text="An idempotency key.")


class ToolCallBody(Strict):
    """A call of the tool in the address."""

    tool_name = Text(required=False, max_length=128)
    parameters = serializers.DictField(required=False, default=dict)
    group = texts(required=False, allow_null=True, default=None)
    state = State()
    session = Text(required=False, allow_null=True, default=None, max_length=64)
    options = OptionsBody(required=False)


class CallBody(ToolCallBody):
    tool_name = Text(max_length=128)


class ResolutionBody(Strict):
    outcome = serializers.ChoiceField(choices=Resolution.choices)
    reason = Text(max_length=500, help_text="How you know.")


class ErrorAnswer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()
    details = serializers.DictField()
    request_id = serializers.CharField()
    client_request_id = serializers.CharField(required=False)
    status = one_of(Status, required=False)
    execution_id = serializers.UUIDField(required=False)
    limit = serializers.JSONField(required=False, help_text="With 429: calls, or a cost as text.")
    used = serializers.JSONField(required=False)
    resets_in_s = serializers.IntegerField(required=False)


class ProblemAnswer(ErrorAnswer):
    """An error for whom accepts `application/problem+json` (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()  # type: ignore[assignment] # as RFC 9457 has it
    detail = serializers.CharField()
    instance = serializers.CharField()


class InputAnswer(serializers.Serializer[Any]):
    tool_name = serializers.CharField()
    parameters = serializers.DictField()


class MetadataAnswer(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    tool_version = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    duration_ms = serializers.FloatField(allow_null=True)
    output_size = serializers.IntegerField(allow_null=True)
    sandbox_id = serializers.CharField(allow_null=True)
    execution_metrics = serializers.DictField()


class RateAnswer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(help_text="Calls a minute.")
    used = serializers.IntegerField(help_text="This one included.")
    resets_in_s = serializers.IntegerField(help_text="Until the oldest of them no longer counts.")


class StoredOutputAnswer(serializers.Serializer[Any]):
    href = serializers.CharField(help_text="Where it is read, in ranges if one likes.")
    content_type = serializers.CharField()
    digest = serializers.CharField()


class ReferenceAnswer(serializers.Serializer[Any]):
    place = serializers.CharField(help_text="In the parameters, as a JSON Pointer.")
    execution_id = serializers.UUIDField()
    path = serializers.CharField(help_text="In that execution, such as /output/items/0.")
    bytes = serializers.IntegerField(help_text="Of the value, as JSON.")


class ParentAnswer(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    place = serializers.CharField(help_text="By which its parent knows it.")


class ExecutionAnswer(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    status = one_of(Status)
    parent = ParentAnswer(allow_null=True, help_text="The call that made this one.")
    input = InputAnswer()
    references = ReferenceAnswer(many=True, help_text="Outputs put into the parameters.")
    output = serializers.JSONField(allow_null=True)
    stored_output = StoredOutputAnswer(
        allow_null=True, help_text="Where `output` is that is too large to stand here."
    )
    output_expired_at = serializers.DateTimeField(
        allow_null=True, help_text="When the organization's time for outputs was over."
    )
    observation = serializers.CharField()
    error_code = serializers.CharField(allow_null=True)
    error_message = serializers.CharField(allow_null=True)
    error_details = serializers.DictField(
        help_text="`effect_possible` where an effect may have happened all the same."
    )
    cached = serializers.BooleanField()
    cost = serializers.CharField()
    metadata = MetadataAnswer()
    session = serializers.DictField(allow_null=True)
    confirmation = serializers.DictField(allow_null=True)
    resolution = serializers.DictField(
        allow_null=True, help_text="A person's word on an outcome that was not known."
    )
    warnings = serializers.ListField(child=serializers.CharField())
    rate = RateAnswer(
        required=False, help_text="To who made the call, where the tool has a limit per minute."
    )


class Page(serializers.Serializer[Any]):
    next = PageReference(allow_null=True)
    previous = PageReference(allow_null=True)


class ExecutionPage(Page):
    results = ExecutionAnswer(many=True)


class ParameterBody(serializers.Serializer[Any]):
    name = serializers.CharField()
    type = one_of(ParameterType)
    description = serializers.CharField()
    required = serializers.BooleanField(required=False)  # type: ignore[assignment]
    default = serializers.JSONField(required=False, allow_null=True)
    enum = serializers.ListField(required=False, allow_null=True)
    schema = serializers.DictField(required=False, allow_null=True)


class ConstraintsBody(serializers.Serializer[Any]):
    max_execution_time = serializers.CharField(required=False)
    max_output_size = serializers.IntegerField(required=False)
    allow_side_effects = serializers.BooleanField(required=False)
    required_isolation = serializers.CharField(required=False)
    sandbox_profile = serializers.CharField(required=False)


class DefinitionBody(serializers.Serializer[Any]):
    """A tool definition. `tools.definitions` reads it and names every wrong field."""

    name = serializers.CharField(max_length=128)
    type = one_of(ToolType)
    title = serializers.CharField(required=False, allow_null=True)
    description = serializers.CharField()
    category = serializers.CharField(required=False)
    parameters = ParameterBody(many=True, required=False)
    input_schema = serializers.DictField(required=False)
    output_schema = serializers.DictField(required=False)
    constraints = ConstraintsBody(required=False)
    required_permissions = serializers.ListField(child=serializers.CharField(), required=False)
    requires_confirmation = serializers.BooleanField(required=False)
    group = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    state = serializers.CharField(required=False, allow_null=True)
    available_in_states = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True
    )
    rate_limit_per_minute = serializers.IntegerField(required=False, allow_null=True)
    cost_per_invocation = serializers.CharField(required=False)
    cost_per_cache_hit = serializers.CharField(required=False)
    cache_ttl = serializers.CharField(required=False, allow_null=True)
    transform = serializers.DictField(
        required=False, help_text="`select`, `redact` and `observation`: what becomes of an output."
    )
    delivery = one_of(Delivery, required=False)
    argument_validation = one_of(ArgumentValidation, required=False)
    capabilities = serializers.ListField(child=serializers.CharField(), required=False)
    implementation = serializers.DictField(required=False)
    version = serializers.CharField(required=False)
    metadata = serializers.DictField(required=False)
    enabled = serializers.BooleanField(required=False)
    max_concurrency = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="How many of its calls run at once; null is no limit. Set by PUT and PATCH.",
    )
    critical = serializers.BooleanField(
        required=False, help_text="Every call needs the consent of two people."
    )


class DefinitionAnswer(DefinitionBody):
    """A tool definition, with what the catalog knows about it."""

    category = one_of(Category, required=False)  # type: ignore[assignment]  # a request may alias
    token_estimate = serializers.IntegerField(help_text="What it costs a model's context, about.")
    status = one_of(ToolStatus)
    status_reason = serializers.CharField()
    origin = one_of(Origin)
    effective_isolation = one_of(
        IsolationLevel,
        required=False,
        help_text="The level it runs at here; shown of one tool, not in lists.",
    )
    digest = serializers.CharField()
    signature = serializers.DictField()
    authentic = serializers.BooleanField(
        help_text="Whether it is what was signed; what is not is never run."
    )
    findings = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text="What the linter says of it; shown when it was saved. See lint_tools.",
    )


class ToolPage(Page):
    results = DefinitionAnswer(many=True)
    warnings = serializers.ListField(child=serializers.CharField())


class ToldPage(Page):
    results = serializers.ListField(child=serializers.DictField())
    warnings = serializers.ListField(child=serializers.CharField())


class VersionAnswer(serializers.Serializer[Any]):
    version = serializers.CharField()
    number = serializers.IntegerField()
    digest = serializers.CharField()
    signature = serializers.DictField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()
    change_note = serializers.CharField()
    origin = one_of(Origin)
    definition = serializers.JSONField(help_text="As it is stored, authentic or not.")


class VersionPage(Page):
    results = VersionAnswer(many=True)


class AgentBody(Strict):
    slug = Text(max_length=63)
    description = Text(required=False, max_length=500, allow_blank=True)
    groups = texts(required=False, allow_null=True)
    tools = texts(required=False, allow_null=True)
    tool_groups = texts(required=False, allow_null=True)
    permissions = texts(required=False, allow_null=True)
    strict = Flag(required=False)


class AgentChange(Strict):
    description = Text(required=False, max_length=500, allow_blank=True)
    groups = texts(required=False)
    tools = texts(required=False)
    tool_groups = texts(required=False)
    permissions = texts(required=False)
    strict = Flag(required=False)
    active = Flag(required=False)
    max_in_flight = Whole(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MOST,
        help_text="How many of its calls may be open at once; null is no limit.",
    )
    pins = serializers.DictField(
        child=Text(allow_null=True, max_length=40),
        required=False,
        help_text="Versions by the names of tools; null takes a pin away, others stay.",
    )
    budget = BudgetBody(
        required=False, allow_null=True, help_text="The cost of all tools; null removes it."
    )
    quotas = Items(
        child=QuotaBody(),
        required=False,
        max_length=MOST_QUOTAS,
        help_text="Replaces the list. The budget stays unless an entry is for the cost of all.",
    )


class SuspendBody(Strict):
    reason = Text(
        required=False,
        max_length=500,
        allow_blank=True,
        default="",
        help_text="Stands in the record.",
    )


class AgentAnswer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    description = serializers.CharField()
    active = serializers.BooleanField()
    strict = serializers.BooleanField()
    max_in_flight = serializers.IntegerField(allow_null=True)
    groups = serializers.ListField(child=serializers.CharField())
    tools = serializers.ListField(child=serializers.CharField())
    tool_groups = serializers.ListField(child=serializers.CharField())
    permissions = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    pins = serializers.DictField(child=serializers.CharField())
    budget = BudgetAnswer(allow_null=True)
    quotas = QuotaAnswer(many=True)


class AgentPage(Page):
    results = AgentAnswer(many=True)


LONGEST_OVERLAP_S = 7 * 86_400.0


class TokenBody(Strict):
    label = Text(required=False, max_length=100, allow_blank=True, default="")  # type: ignore[assignment]
    scopes = Items(
        child=serializers.ChoiceField(choices=[Scope.READ.value, Scope.EXECUTE.value]),
        required=False,
        allow_empty=False,
    )
    days = Whole(required=False, min_value=1, max_value=365)
    groups = texts(required=False, allow_null=True, help_text="Narrower than the holder's.")
    tools = texts(required=False, allow_null=True, help_text="The only tools it is good for.")


class RotationBody(Strict):
    overlap = Duration(
        required=False,
        least_s=0,
        longest_s=LONGEST_OVERLAP_S,
        help_text="For how long the old token stays good, such as PT1H; P7D at most. Absent: not.",
    )


class LoginBody(Strict):
    username = Text(max_length=150)
    password = Text(max_length=4096, style={"input_type": "password"})
    code = Text(
        required=False,
        max_length=40,
        help_text="Of the authenticator app, or a recovery code: for who has a second factor.",
    )
    label = Text(required=False, max_length=100, allow_blank=True, default="")  # type: ignore[assignment]
    days = Whole(required=False, min_value=1, max_value=365)
    scopes = Items(
        child=serializers.ChoiceField(choices=[scope.value for scope in Scope]),
        required=False,
        allow_empty=False,
    )
    groups = texts(required=False, allow_null=True, help_text="Narrower than the holder's.")
    tools = texts(required=False, allow_null=True, help_text="The only tools it is good for.")


class NewTokenAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    token = serializers.CharField(
        allow_null=True, help_text="Shown this once; null where a replay withholds it."
    )
    expires_at = serializers.DateTimeField()


class TokenAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment]
    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    groups = serializers.ListField(child=serializers.CharField(), allow_null=True)
    tools = serializers.ListField(child=serializers.CharField(), allow_null=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class TokenPage(Page):
    results = TokenAnswer(many=True)


class OrganizationBody(Strict):
    slug = Text(max_length=63)
    name = Text(max_length=200)
    tier = Text(max_length=60, required=False, default="Core")


class OrganizationChange(Strict):
    name = Text(max_length=200, required=False)
    tier = Text(max_length=60, required=False)
    minimum_isolation = serializers.ChoiceField(choices=LEVELS, required=False)
    allowed_hosts = Items(
        child=serializers.JSONField(),
        required=False,
        max_length=MOST_RULES,
        help_text="What web_fetch may reach: hosts, or objects as a sandbox profile has them.",
    )
    time_zone = Text(
        max_length=64,
        required=False,
        help_text="Such as Europe/Berlin, in which windows of groups and days of quotas are meant.",
    )
    max_concurrency = Whole(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MOST,
        help_text="How many of its calls run at once; null is no limit.",
    )
    max_queue_depth = Whole(
        required=False,
        min_value=1,
        max_value=MOST,
        help_text="How many of its calls may wait for a worker; one more is refused.",
    )
    workspace_max_files = Whole(
        required=False,
        min_value=1,
        max_value=MOST,
        help_text="How many files and folders its workspace may hold; write_file refuses one more.",
    )
    workspace_max_bytes = Whole(
        required=False,
        min_value=1,
        max_value=MOST_BYTES,
        help_text="How many bytes its workspace may hold; write_file refuses more.",
    )
    output_days = Whole(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MOST_DAYS,
        help_text="For how many days outputs are kept; null keeps them without an end.",
    )


class LicenseAnswer(serializers.Serializer[Any]):
    """The current state of the organization's license."""

    id = serializers.CharField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    grace_ends_at = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(choices=[*LicenseState])
    effective_tier = serializers.CharField()


class OrganizationAnswer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    name = serializers.CharField()
    tier = serializers.CharField()
    license = LicenseAnswer()
    minimum_isolation = serializers.ChoiceField(choices=LEVELS)
    allowed_hosts = serializers.ListField(child=serializers.JSONField())
    time_zone = serializers.CharField()
    max_concurrency = serializers.IntegerField(allow_null=True)
    max_queue_depth = serializers.IntegerField()
    workspace_max_files = serializers.IntegerField()
    workspace_max_bytes = serializers.IntegerField()
    output_days = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()


class OrganizationPage(Page):
    results = OrganizationAnswer(many=True)


class PathBody(serializers.Serializer[Any]):
    path = serializers.CharField()
    mode = serializers.ChoiceField(choices=["ro", "rw"], required=False)


class ProfileChange(serializers.Serializer[Any]):
    """A sandbox profile. `tools.catalog.sandbox.profiles` reads it and names every wrong field."""

    description = serializers.CharField(required=False)
    backend = serializers.ChoiceField(choices=[str(one) for one in Backend], required=False)
    minimum_isolation = serializers.ChoiceField(choices=LEVELS, required=False)
    allow_filesystem = serializers.BooleanField(required=False)
    allowed_paths = PathBody(many=True, required=False)
    allow_network = serializers.BooleanField(required=False)
    allowed_hosts = Items(
        child=serializers.JSONField(),
        required=False,
        help_text="Hosts, or objects of host, ports, methods, paths and credential.",
    )
    proxy = serializers.BooleanField(required=False)
    network_when_restricted = serializers.BooleanField(required=False)
    max_memory_bytes = serializers.IntegerField(required=False)
    max_cpu_time = serializers.CharField(required=False)
    max_processes = serializers.IntegerField(required=False, allow_null=True)
    max_disk_bytes = serializers.IntegerField(required=False)
    max_files = serializers.IntegerField(required=False)
    quota_bytes = serializers.IntegerField(required=False)
    quota_files = serializers.IntegerField(required=False)


class ProfileBody(ProfileChange):
    name = serializers.CharField(max_length=63)


class ProfileAnswer(ProfileBody):
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class ProfilePage(Page):
    results = ProfileAnswer(many=True)


class CredentialChange(serializers.Serializer[Any]):
    header = serializers.CharField(max_length=64, required=False)
    value = serializers.CharField(required=False, write_only=True)


class CredentialReplacement(Strict):
    name = Text(required=False, max_length=63, help_text="As it is; it cannot be changed.")
    header = Text(max_length=64)
    value = Text(max_length=8192)


class CredentialBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    header = serializers.CharField(max_length=64, help_text="Such as Authorization.")
    value = serializers.CharField(help_text="Such as Bearer …; kept encrypted, never shown again.")


class CredentialAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    header = serializers.CharField()
    value = serializers.CharField(help_text="Always …")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class CredentialPage(Page):
    results = CredentialAnswer(many=True)


class TierChange(Strict):
    builtin_tools = texts(required=False, allow_null=True)
    max_custom_tools = Whole(required=False, allow_null=True, min_value=0, max_value=1_000_000)
    isolation_levels = texts(required=False, allow_null=True)
    custom_sandbox_profiles = Flag(required=False)


class TierAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    rank = serializers.IntegerField()
    builtin_tools = serializers.ListField(child=serializers.CharField(), allow_null=True)
    max_custom_tools = serializers.IntegerField(allow_null=True)
    isolation_levels = serializers.ListField(child=serializers.CharField(), allow_null=True)
    custom_sandbox_profiles = serializers.BooleanField()


class TierPage(Page):
    results = TierAnswer(many=True)
