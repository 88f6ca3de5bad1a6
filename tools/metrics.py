"""Prometheus metrics served at /metrics. The first nine names are specification S1, 8.1, to the
letter.

Label values that come from clients are bounded: a group or state no row names is `unknown`.
"""

from prometheus_client import Counter, Gauge, Histogram

UNKNOWN = "unknown"

group_requests = Counter("agent_tool_group_requests_total", "Requests by group.", ["group"])
group_availability = Gauge(
    "agent_tool_group_availability",
    "Tools available per group.",
    ["organization", "group"],
    multiprocess_mode="mostrecent",
)
filtered_tools = Histogram(
    "agent_filtered_tools_count",
    "Tools left after group and state filtering.",
    buckets=(0, 1, 2, 5, 10, 20, 50, 100, 1000, 10_000),
)
state_transitions = Counter(
    "agent_state_transitions_total", "State transitions by tool.", ["tool", "to"]
)
workflow_duration = Histogram(
    "agent_workflow_duration_seconds", "Time spent in each state.", ["state"]
)
state_availability = Gauge(
    "agent_state_availability",
    "Tools available per state.",
    ["organization", "state"],
    multiprocess_mode="mostrecent",
)
group_access_denied = Counter(
    "agent_group_access_denied_total", "Requests for groups that were not granted.", ["group"]
)
invalid_transitions = Counter(
    "agent_invalid_state_transition_total", "Calls that the current state does not allow.", ["tool"]
)
escalation_attempts = Counter(
    "agent_privilege_escalation_attempts_total", "Requests beyond what was granted.", ["kind"]
)

executions = Counter("toolcrib_executions_total", "Executions by status.", ["tool", "status"])
execution_seconds = Histogram(
    "toolcrib_execution_duration_seconds",
    "From start to result.",
    ["tool"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
queue_seconds = Histogram(
    "toolcrib_execution_queue_seconds",
    "From acceptance to start.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30),
)
polled = Counter(
    "toolcrib_polled_total",
    "Calls a worker found by looking, because its hint was late or Redis silent.",
    ["reason"],
)
csp_reports = Counter(
    "toolcrib_csp_reports_total",
    "What browsers refused on a page, by what forbade it; dropped where there were too many.",
    ["directive"],
)
sandbox_ends = Counter(
    "toolcrib_sandbox_ends_total", "Sandboxed runs by how they ended; a tool's own codes as tool.",
    ["code"],
)  # fmt: skip
egress_attempts = Counter(
    "toolcrib_egress_attempts_total", "Requests to the egress broker by outcome.", ["outcome"]
)
service_answers_dropped = Counter(
    "toolcrib_service_answers_dropped_total",
    "Answers of tool services that nobody had asked for: foreign, token, duplicate or late.",
    ["reason"],
)
service_announcements = Counter(
    "toolcrib_service_announcements_total",
    "What services said of themselves, by what became of it.",
    ["outcome"],
)
cache_lookups = Counter(
    "toolcrib_cache_lookups_total",
    "Calls of tools that may be cached: hit, miss, or shared with one that was running.",
    ["tool", "outcome"],
)
sessions_stuck = Gauge(
    "toolcrib_sessions_stuck",
    "Open sessions whose groups have no tool in their state.",
    ["organization"],
    multiprocess_mode="mostrecent",
)
session_mismatches = Counter(
    "toolcrib_session_mismatches_total",
    "Requests that name another group or state than their session has.",
    ["field"],
)
confirmation_wait = Histogram(
    "toolcrib_confirmation_wait_seconds",
    "From a call that was held to its last word.",
    ["outcome"],
    buckets=(1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 86_400),
)
confirmation_reminders = Counter(
    "toolcrib_confirmation_reminders_total", "Held calls that nobody had decided in time."
)
rate_decisions = Counter(
    "toolcrib_rate_decisions_total",
    "Calls counted for a limit per minute, by who counted: redis, or postgres in its place.",
    ["by"],
)
allowance_alerts = Counter(
    "toolcrib_allowance_alerts_total",
    "Quotas (calls) and budgets (cost) that are used to 80 or 100 percent.",
    ["kind", "percent"],
)
shed = Counter(
    "toolcrib_shed_total", "Calls turned away because too much waited or ran, by code.", ["code"]
)
queue_age = Gauge(
    "toolcrib_queue_age_seconds",
    "How long the first in line has waited that may begin, as of the last second with a call.",
    multiprocess_mode="mostrecent",
)
queue_depth = Gauge(
    "toolcrib_queue_depth",
    "Calls that wait for a worker, as of the last second with a call.",
    multiprocess_mode="mostrecent",
)
expired_calls = Counter(
    "toolcrib_expired_calls_total", "Calls that were dropped: none of them had begun in time."
)
denials = Counter("toolcrib_denials_total", "Refused calls by reason.", ["reason"])
unknown_names = Counter(
    "toolcrib_unknown_names_total", "Groups and states asked for that nothing has.", ["kind"]
)
group_executions = Counter(
    "toolcrib_group_executions_total", "Executions by requested group.", ["group", "status"]
)
group_seconds = Histogram(
    "toolcrib_group_execution_duration_seconds",
    "From start to result, by requested group.",
    ["group"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30, 300),
)
agent_runs = Counter(
    "toolcrib_agent_runs_total", "Requests of agents that are over.", ["pattern", "status"]
)
agent_run_steps = Histogram(
    "toolcrib_agent_run_steps",
    "How many times an agent asked its model before it was over.",
    ["pattern"],
    buckets=(1, 2, 3, 5, 8, 13, 21, 50),
)
agent_tokens = Counter(
    "toolcrib_agent_tokens_total", "What went to models for agents, and came back.", ["direction"]
)
empty_lists = Counter("toolcrib_empty_tool_lists_total", "Listings that showed no tool.")

license_expires = Gauge(
    "toolcrib_license_expires_seconds",
    "Seconds until a licence ends, as of the last hour; +Inf without an end.",
    ["organization"],
    multiprocess_mode="mostrecent",
)

# Of sandboxd; set when they are read.
sandbox_ceiling = Gauge(
    "toolcrib_sandbox_level_ceiling",
    "The highest isolation level: 0 None, 1 Standard, 2 Strict, 3 Restricted; -1 not one.",
    multiprocess_mode="mostrecent",
)
sandbox_mode = Gauge(
    "toolcrib_sandbox_mode",
    "1 for the kind of control groups in use.",
    ["mode"],
    multiprocess_mode="mostrecent",
)
sandbox_slots = Gauge(
    "toolcrib_sandbox_slots", "Slots that wait for a run.", multiprocess_mode="mostrecent"
)
sandbox_servers = Gauge(
    "toolcrib_sandbox_servers",
    "MCP servers that run behind the wall.",
    multiprocess_mode="mostrecent",
)
sandbox_templates = Gauge(
    "toolcrib_sandbox_templates",
    "Templates from which slots are made.",
    multiprocess_mode="mostrecent",
)
