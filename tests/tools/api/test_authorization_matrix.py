"""Every route × method × kind of caller × organization, checked against one table.

The routes come from the URL resolver. One that the table does not contain fails: add a row to
EXPECTED with the requirements for its callers.
"""

import copy
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from itertools import batched
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test import Client
from django.urls import (
    URLPattern,
    URLResolver,
    get_resolver,
    is_valid_path,
    resolve,
    reverse,
)
from django.utils import timezone

from audit.log import sealer
from audit.models import Alert, AlertChannel, AlertRule, AuditExport, AuditRecord, Checkpoint
from tests import agent_runs, factories
from tests.savepoints import read_catalogs, rolled_back
from tests.tools.api.document import AS_JSON
from tools.accounts import account_actions
from tools.accounts.grants.grant_queries import grant_id
from tools.accounts.login import login
from tools.accounts.roles import Role, roles
from tools.approvals import confirmation_rules
from tools.catalog import builtins
from tools.catalog.mcp import mcp_servers
from tools.catalog.sandbox import content_schemas, credentials, profiles
from tools.catalog.services import services
from tools.catalog.signatures import keys
from tools.catalog.signatures.drift import note_upstream
from tools.definitions.chains.chain_document import chain_definition
from tools.definitions.results import Status
from tools.execution.call import Result
from tools.insight import workspace_reads
from tools.messaging import message_channels
from tools.models import (
    Confirmation,
    Execution,
    InboxItem,
    LicenseTier,
    McpAuthorization,
    McpOAuthClient,
    Message,
    Organization,
    PersonSession,
    Session,
    UpstreamChange,
    User,
)
from tools.models.permission import GrantRow
from tools.web import reauthentication

IN = "in"  # authorized: 2xx, or a 4xx for another reason
LOGIN = "login"  # a page redirects unauthenticated visitors to the login page
NONSENSE = {"nonsense": 1}  # refused with 400 by every view that reads a body
NOBODY = "nobody holds this"
MCP_ADDRESSES = (
    "api-mcp-authorizations", "api-mcp-authorization", "api-mcp-oauth-client",
    "api-mcp-server", "api-mcp-refresh", "api-mcp-difference", "api-mcp-import",
    "api-mcp-credential",
)  # fmt: skip
WAYS = (
    "api-channel", "api-channel-key", "api-channel-test", "channel-try", "channel-edit",
    "channel-key", "channel-remove",
)  # fmt: skip
OWN_CALLS = (
    "api-agent-requests", "agent-request-new", "api-batches", "api-chain-execute",
    "api-chain-proposals", "api-chain-rehearse",
    "api-execute", "api-executions", "api-sessions", "tool-call", "tool-try",
    "profile-password", "profile-sessions-end", "profile-token-new", "playground", "login-again",
    "audit-exports",
    "factor-app", "factor-key", "factor-codes",
)  # fmt: skip
WORKSPACE = ("workspace", "workspace-file", "workspace-download")  # they need the sandbox
PROFILE = ("profile-token-revoke", "profile-session-end")
CHAINS = ("api-chain", "api-chain-execute", "api-chain-rehearse", "chain-edit")
READ, EXECUTE = (frozenset([scope]) for scope in ("read", "execute"))
PARTS = ("catalog", "agents", "audit", "organization")
CATALOG, AGENTS, AUDIT, ORGANIZATION = (frozenset([scope]) for scope in PARTS)
MANAGE = CATALOG | AGENTS | AUDIT | ORGANIZATION  # the scopes that `manage` includes
ALL = READ | EXECUTE | MANAGE
# The scope that a token needs to change these rows.
SCOPES = {
    CATALOG: """
        confirmationrule contentschema mcpserver messagechannel sandboxprofile tool toolgroup
        toolservice
    """,
    AGENTS: "agent confirmation execution session token",
    AUDIT: "alert auditpayload",
    ORGANIZATION: "egresscredential licensetier organization signingkey",
}
SCOPE_OF = {row: scope for scope, rows in SCOPES.items() for row in rows.split()}
METHODS = ("get", "post", "put", "patch", "delete")
WRITTEN = re.compile(  # ON CONFLICT DO UPDATE belongs to the INSERT
    r'(INSERT INTO|(?<!FOR )(?<!KEY )(?<!DO )UPDATE|DELETE FROM) "?(\w+)"?(?: SET "?(\w+)"?)?'
)
LEFT_BY_A_REFUSAL = {
    "INSERT INTO audit_auditrecord", "INSERT INTO audit_auditpayload",
    "INSERT INTO audit_auditkey",  # with an organization's first payload
    # A refused call is recorded as a row too.
    "INSERT INTO tools_execution", "INSERT INTO tools_requestrecord",
    "INSERT INTO tools_toolfilter", "INSERT INTO tools_catalognames",
    "UPDATE tools_token last_used_at",
    "UPDATE tools_organization revision",  # runs before the row is looked up, and is rolled back
    "DELETE FROM tools_authenticatorapp",
}  # fmt: skip


@dataclass(frozen=True)
class Needs:
    """The requirements for one method of one route."""

    scopes: frozenset[str] = READ
    permission: str = ""  # without it 403
    sees: str = ""  # without it 404, as if it did not exist
    owner: bool = False  # the organization's agents hold both for their own rows
    superuser: bool = False
    session: bool = False  # needs a browser session; tokens are refused
    everywhere: bool = False  # organizations and tiers: in any organization
    anybody: bool = False  # also unauthenticated callers
    people: bool = False  # refused to agents, even for their own rows
    manages: bool = False  # needs a managing scope for rows of others
    of_tool: bool = False  # a token narrowed to the tool may change it
    other_tool: bool = False  # a call of another tool: hidden from a token narrowed to one
    refuses: bool = False  # refuses a wrong password from every caller
    body: Any = field(default_factory=lambda: NONSENSE, hash=False)


def reads(permission: str = "", **more: Any) -> Needs:
    """For people with the permission if one is named, otherwise for all callers."""
    return Needs(READ, permission, **more)


def manages(permission: str, **more: Any) -> Needs:
    return Needs(SCOPE_OF[permission.rpartition("_")[2]], permission, **more)


def four(row: str, *methods: str, **more: Any) -> dict[str, Needs]:
    """The methods of a model's route, guarded by Django's model permissions."""
    verbs = {"get": "view", "put": "change", "patch": "change", "delete": "delete", "post": "add"}
    return {
        method: reads(f"tools.view_{row}")
        if method == "get"
        else manages(f"tools.{verbs[method]}_{row}", **more)
        for method in methods
    }


OPEN = Needs(anybody=True)
WORD = {"bound_hash": "0" * 64}
SUPERUSER = {
    "get": Needs(READ, superuser=True, everywhere=True),
    "post": Needs(ORGANIZATION, superuser=True, everywhere=True),
    "patch": Needs(ORGANIZATION, superuser=True, everywhere=True),
}
OWN_EXECUTION = Needs(READ, sees="tools.view_execution", owner=True)
OWN_SESSION = Needs(READ, sees="tools.view_session", owner=True)
OTHER_EXECUTION = Needs(READ, sees="tools.view_execution", owner=True, other_tool=True)
DECIDES = Needs(AGENTS, "tools.decide_confirmation", session=True, body=WORD)
CONFIRMED = Needs(READ, "tools.view_confirmation")

# The requirements of each method of each REST route, by the route's name.
EXPECTED: dict[str, dict[str, Needs]] = {
    "api-schema": {"get": OPEN},
    "api-docs": {"get": OPEN},
    "api-tools": {"get": reads(), "post": manages("tools.add_tool")},
    "api-explain": {"get": reads()},
    "api-tool-graph": {"get": reads()},
    "api-what-if": {
        "post": Needs(
            READ | AGENTS,
            "tools.change_agent",
            body={"change": {"kind": "grant", "agent": "twin", "groups": ["default"]}},
        )
    },
    "api-lint": {"get": reads("tools.view_tool"), "post": reads("tools.view_tool")},
    "api-import": {"post": manages("tools.add_tool")},
    "api-export": {"get": reads("tools.view_tool")},
    "api-tool": {
        "get": Needs(sees="tools.view_tool", owner=True),
        **four("tool", "put", "patch", "delete", of_tool=True),
    },
    "api-execute": {"post": Needs(EXECUTE, everywhere=True)},
    "api-enable": {"post": manages("tools.change_tool", of_tool=True)},
    "api-disable": {"post": manages("tools.change_tool", of_tool=True)},
    "api-versions": {"get": reads("tools.view_tool")},
    "api-changes": {"get": reads("tools.view_tool")},
    "api-change": {"get": reads("tools.view_tool")},
    "api-change-approve": {"post": manages("tools.change_tool", body={"digest": "sha256:0"})},
    "api-change-reject": {"post": manages("tools.change_tool", body={"digest": "sha256:0"})},
    "api-difference": {"get": reads("tools.view_tool")},
    "api-restore": {"post": manages("tools.change_tool", of_tool=True)},
    "api-chains": {"get": reads(), "post": manages("tools.add_tool")},
    "api-chain": {
        "get": Needs(sees="tools.view_tool", owner=True),
        **four("tool", "put", "delete"),
    },
    "api-chain-execute": {"post": Needs(EXECUTE, everywhere=True)},
    "api-chain-rehearse": {"post": Needs(EXECUTE, sees="tools.view_tool", owner=True)},
    "api-chain-proposals": {"post": Needs(READ)},
    "api-chain-run": {"get": OTHER_EXECUTION},
    "api-batches": {"post": Needs(EXECUTE)},
    "api-batch": {"get": OTHER_EXECUTION},
    "api-batch-cancel": {
        "post": Needs(
            EXECUTE,
            "tools.change_execution",
            sees="tools.view_execution",
            owner=True,
            manages=True,
            other_tool=True,
        )
    },
    # Without a question 400 for every caller.
    "api-agent-requests": {"get": reads(), "post": Needs(EXECUTE)},
    "api-agent-request": {"get": OTHER_EXECUTION},
    "api-agent-request-events": {"get": OTHER_EXECUTION},
    "api-executions": {"get": reads(), "post": Needs(EXECUTE)},
    "api-execution": {"get": OWN_EXECUTION},
    "api-output": {"get": OWN_EXECUTION},
    "api-events": {"get": OWN_EXECUTION},
    "api-cancel": {
        "post": Needs(
            EXECUTE,
            "tools.change_execution",
            sees="tools.view_execution",
            owner=True,
            manages=True,
        )
    },
    "api-resolve": {
        "post": manages(
            "tools.change_execution",
            sees="tools.view_execution",
            people=True,
            body={"outcome": "happened", "reason": "The recipient has it."},
        )
    },
    "api-sessions": {"get": reads(), "post": Needs(EXECUTE)},
    "api-session": {
        "get": OWN_SESSION,
        "delete": Needs(
            EXECUTE, "tools.change_session", sees="tools.view_session", owner=True, manages=True
        ),
    },
    "api-session-history": {"get": OWN_SESSION},
    "api-confirmations": {"get": CONFIRMED},
    "api-confirmation": {"get": CONFIRMED},
    "api-confirmation-approve": {"post": DECIDES},
    "api-confirmation-reject": {"post": DECIDES},
    "api-confirmations-decide": {
        "post": Needs(
            AGENTS,
            "tools.decide_confirmation",
            session=True,
            body={"decisions": [{"id": str(uuid4()), "approve": True, **WORD}]},
        )
    },
    "api-confirmation-rules": four("confirmationrule", "get", "post"),
    "api-confirmation-rule": four("confirmationrule", "get", "put", "patch", "delete"),
    "api-groups": {"get": reads(), "post": manages("tools.add_toolgroup")},
    "api-group-recommendations": {"get": reads()},
    "api-group": {
        "get": Needs(sees="tools.view_toolgroup", owner=True),
        **four("toolgroup", "put", "patch", "delete"),
    },
    "api-agents": four("agent", "get", "post"),
    "api-agent": four("agent", "get", "patch"),
    "api-suspend": {"post": manages("tools.change_agent")},
    "api-agent-tokens": four("token", "get", "post"),
    "api-agent-token": four("token", "delete"),
    "api-grants": {"get": reads("tools.view_agent"), "post": manages("tools.change_agent")},
    "api-grant": {"delete": manages("tools.change_agent")},
    "api-state-graph": {"get": reads()},
    "api-agent-token-rotate": {"post": manages("tools.add_token")},
    "api-tokens": {"get": reads(), "post": OPEN},
    "api-token": {"delete": Needs(READ, sees=NOBODY)},
    "api-token-rotate": {"post": Needs(READ, sees=NOBODY, body={"overlap": "PT1H"})},
    "api-organizations": {"get": SUPERUSER["get"], "post": SUPERUSER["post"]},
    "api-organization": {"get": SUPERUSER["get"], "patch": SUPERUSER["patch"]},
    "api-tier-preview": {"post": SUPERUSER["post"]},
    "api-tier-terms-preview": {"post": SUPERUSER["post"]},
    "api-sandbox-profiles": four("sandboxprofile", "get", "post"),
    "api-sandbox-profile": four("sandboxprofile", "get", "put", "patch", "delete"),
    "api-content-schemas": four("contentschema", "get", "post"),
    "api-content-schema": four("contentschema", "get", "put", "delete"),
    "api-content-schema-version": four("contentschema", "get"),
    "api-egress-credentials": four("egresscredential", "get", "post"),
    "api-egress-credential": four("egresscredential", "get", "put", "patch", "delete"),
    "api-channels": four("messagechannel", "get", "post"),
    "api-channel": four("messagechannel", "get", "patch", "delete"),
    "api-channel-key": {"post": manages("tools.change_messagechannel")},
    "api-channel-test": {"post": manages("tools.change_messagechannel")},
    # Without an account: the provider signs with the channel's key.
    "api-channel-bounces": {"post": Needs(anybody=True, refuses=True)},
    "api-messages": {"get": reads("tools.view_message")},
    "api-message": {"get": reads("tools.view_message")},
    "api-inbox": {"get": reads()},
    "api-inbox-read": {"post": Needs(READ, sees=NOBODY)},
    "api-tool-services": four("toolservice", "get", "post"),
    "api-tool-service": four("toolservice", "get", "patch", "delete"),
    "api-service-state": {"get": reads("tools.view_toolservice")},
    "api-service-approve": {"post": manages("tools.change_toolservice")},
    "api-service-reject": {"post": manages("tools.change_toolservice")},
    "api-mcp-servers": four("mcpserver", "get", "post"),
    "api-mcp-server": four("mcpserver", "get", "patch", "delete"),
    "api-mcp-refresh": {"post": manages("tools.change_mcpserver")},
    "api-mcp-authorizations": {
        "get": reads("tools.view_mcpserver"),
        "post": manages("tools.change_mcpserver"),
    },
    "api-mcp-authorization": {"delete": manages("tools.change_mcpserver")},
    "api-mcp-oauth-client": {
        "put": manages("tools.change_mcpserver"),
        "delete": manages("tools.change_mcpserver"),
    },
    "api-mcp-difference": {"get": reads("tools.view_mcpserver")},
    "api-mcp-import": {"post": manages("tools.add_tool")},
    "api-mcp-credential": {
        "put": manages("tools.change_mcpserver"),
        "delete": manages("tools.change_mcpserver"),
    },
    "api-signing-keys": four("signingkey", "get", "post"),
    "api-signing-key": four("signingkey", "get"),
    "api-signing-key-distrust": {"post": manages("tools.change_signingkey")},
    "api-requests": {"get": reads()},
    "api-cache-invalidate": {"post": manages("tools.change_tool")},
    "api-usage": {"get": reads()},
    "api-tiers": {"get": reads("tools.view_licensetier")},
    "api-tier": {
        "get": reads("tools.view_licensetier", everywhere=True),
        "patch": SUPERUSER["patch"],
    },
    "api-audit": {"get": Needs(READ, "audit.view_auditrecord")},
    "api-audit-record": {"get": Needs(READ, "audit.view_auditrecord")},
    "api-audit-proof": {"get": Needs(READ, "audit.view_auditrecord")},
    "api-audit-checkpoints": {"get": Needs(READ, "audit.view_auditrecord")},
    "api-audit-export": {"get": Needs(READ, "audit.view_auditrecord")},
    "api-audit-erasures": {"post": manages("audit.delete_auditpayload")},
    "api-alerts": {"get": Needs(READ, "audit.view_auditrecord")},
    "api-alert-acknowledge": {"post": manages("audit.change_alert")},
}
# The same for pages. They accept browser sessions only; a method that is not named is refused.
SEEN_TOOL = Needs(sees="tools.view_tool")
SEEN_EXECUTION = Needs(sees="tools.view_execution")
PAGES: dict[str, dict[str, Needs]] = {
    "catalog": {"get": Needs()},
    "home": {"get": Needs()},  # the user's own calls, or all
    "search": {"get": Needs()},
    # Those that the user may ask about, or call as; or none.
    "explained-agents": {"get": Needs()},
    "called-as-agents": {"get": Needs()},
    "known-rules": {"get": Needs(permission="audit.view_auditrecord")},
    "known-tools": {"get": Needs(permission="tools.view_tool")},
    "catalog-change": dict.fromkeys(("get", "post"), Needs(permission="tools.change_tool")),
    "catalog-undo": {"post": Needs(permission="tools.change_tool")},
    "login": {"get": OPEN, "post": Needs(anybody=True, refuses=True)},
    # Visitors without a correct password are redirected to the login in every case.
    "second-factor": {"get": OPEN, "post": OPEN},
    "single-sign-on": {"get": OPEN},  # tests/ui/accounts/test_single_sign_on.py
    "single-sign-on-back": {"get": OPEN},
    "login-again": {"get": Needs(), "post": Needs(refuses=True)},
    "logout": {"post": Needs()},
    "profile": {"get": Needs()},
    "profile-password": {"get": Needs(), "post": Needs(body={"old_password": ""})},
    "profile-token-new": {"post": Needs()},
    "profile-token-revoke": {"post": Needs(sees=NOBODY)},
    "factors": {"get": Needs()},
    "factor-app": {"get": Needs(), "post": Needs()},
    "factor-app-remove": {"post": Needs(sees=NOBODY)},
    "factor-key": {"get": Needs(), "post": Needs()},
    "factor-key-remove": {"post": Needs(sees=NOBODY)},
    "factor-codes": dict.fromkeys(("get", "post"), Needs()),
    "single-sign-on-connect": {"post": Needs(sees=NOBODY)},  # none is configured
    "single-sign-on-disconnect": {"post": Needs(sees=NOBODY)},
    "profile-sessions-end": {"post": Needs()},
    "profile-session-end": {"post": Needs(sees=NOBODY)},
    "tool": {"get": SEEN_TOOL},
    "tool-enable": {"post": Needs(permission="tools.change_tool")},
    "tool-disable": {"post": Needs(permission="tools.change_tool")},
    "tool-call": dict.fromkeys(("get", "post"), SEEN_TOOL),
    "tool-try": dict.fromkeys(("get", "post"), Needs(everywhere=True)),  # leads to it
    "tool-who": {"get": Needs(permission="tools.view_agent", sees=SEEN_TOOL.sees)},
    "tool-usage": {"get": SEEN_TOOL},
    "tool-version": {"get": SEEN_TOOL},
    "tool-difference": {"get": SEEN_TOOL},
    "tool-restore": {"post": Needs(permission="tools.change_tool", body={"version": "1.0.0"})},
    "tool-drift": {"post": Needs(permission="tools.change_tool", body={"on_drift": "refuse"})},
    "changes": {"get": Needs(permission="tools.view_tool")},
    "change": {"get": Needs(permission="tools.view_tool")},
    "change-decide": {
        "post": Needs(permission="tools.change_tool", body={"word": "approve", "digest": "x"})
    },
    "keys": {
        "get": Needs(permission="tools.view_signingkey"),
        "post": Needs(permission="tools.add_signingkey"),
    },
    "key-distrust": dict.fromkeys(("get", "post"), Needs(permission="tools.change_signingkey")),
    "tool-new": dict.fromkeys(("get", "post"), Needs(permission="tools.add_tool")),
    "tool-edit": dict.fromkeys(("get", "post"), Needs(permission="tools.change_tool")),
    "import": dict.fromkeys(("get", "post"), Needs(permission="tools.add_tool")),
    "export": {"get": Needs(permission="tools.view_tool")},
    "tool-export": {"get": Needs(permission="tools.view_tool")},
    "chains": {"get": Needs()},
    "chain-new": dict.fromkeys(("get", "post"), Needs(permission="tools.add_tool")),
    "chain-check": {"post": Needs(permission="tools.add_tool")},
    "chain-edit": dict.fromkeys(("get", "post"), Needs(permission="tools.change_tool")),
    "groups": {"get": Needs(permission="tools.view_toolgroup")},
    "group-new": dict.fromkeys(("get", "post"), Needs(permission="tools.add_toolgroup")),
    "group-change": dict.fromkeys(("get", "post"), Needs(permission="tools.change_toolgroup")),
    "walk": {
        "get": Needs()
    },  # the user's own, or an agent's as Explain: tests/ui/workflow/test_workflow.py
    "workflow": {"get": Needs(permission="tools.view_tool")},
    # Or with grants of the group that read_file is in: tests/ui/settings/test_workspace.py.
    "workspace": {"get": Needs(superuser=True)},
    "workspace-file": {"get": Needs(superuser=True)},
    "workspace-download": {"get": Needs(superuser=True)},
    # Or with grants of the group that search_knowledge is in: tests/ui/knowledge/test_knowledge.py.
    "knowledge": {"get": Needs(superuser=True)},
    "knowledge-entity": {"get": Needs(superuser=True)},
    "knowledge-export": {"get": Needs(superuser=True)},
    "knowledge-import": dict.fromkeys(
        ("get", "post"), Needs(permission="tools.add_knowledgeentry")
    ),
    "schemas": {"get": Needs(permission="tools.view_contentschema")},
    "schema": {"get": Needs(permission="tools.view_contentschema")},
    "schema-new": dict.fromkeys(("get", "post"), Needs(permission="tools.add_contentschema")),
    "schema-edit": dict.fromkeys(("get", "post"), Needs(permission="tools.change_contentschema")),
    "schema-remove": dict.fromkeys(("get", "post"), Needs(permission="tools.delete_contentschema")),
    "playground": dict.fromkeys(("get", "post"), Needs()),  # tests/ui/playground/test_playground.py
    "settings": {"get": Needs(permission="audit.view_auditrecord")},
    "settings-organization": dict.fromkeys(("get", "post"), Needs(superuser=True)),
    "usage": {"get": Needs()},  # the user's own calls, or all
    "explain": {"get": Needs()},
    "what-if": {"get": Needs(permission="tools.view_agent")},
    "sandbox": {"get": Needs(permission="tools.change_tool")},
    "styleguide": {"get": Needs(superuser=True)},  # or staff: tests/ui/settings/test_styleguide.py
    "licenses": {"get": Needs(permission="tools.view_licensetier")},
    "licenses-change": {"post": Needs(superuser=True, body={"tier": "Core"})},
    "license-tier": dict.fromkeys(("get", "post"), Needs(superuser=True, everywhere=True)),
    "licenses-undo": {"post": Needs(superuser=True)},
    # The user's own, or all; for an agent with impersonation:
    # tests/ui/agents/test_agent_request_form.py.
    "agent-requests": {"get": Needs()},
    "agent-request-new": dict.fromkeys(("get", "post"), Needs()),
    "agent-request": {"get": SEEN_EXECUTION},
    "agent-request-cancel": {
        "post": Needs(permission="tools.change_execution", sees="tools.view_execution")
    },
    "agents": {"get": Needs(permission="tools.view_agent")},
    "agent": {"get": Needs(permission="tools.view_agent")},
    "agent-new": dict.fromkeys(("get", "post"), Needs(permission="tools.add_agent")),
    "agent-edit": dict.fromkeys(("get", "post"), Needs(permission="tools.change_agent")),
    "agent-bounds": dict.fromkeys(("get", "post"), Needs(permission="tools.change_agent")),
    "agent-suspend": {"post": Needs(permission="tools.change_agent")},
    "agent-resume": {"post": Needs(permission="tools.change_agent")},
    "agent-give": {"post": Needs(permission="tools.change_agent")},
    "agent-take": {"post": Needs(permission="tools.change_agent")},
    "agent-token-new": {"post": Needs(permission="tools.add_token")},
    "agent-token-revoke": {"post": Needs(permission="tools.delete_token")},
    "session": {"get": Needs(sees="tools.view_session")},
    "session-end": {"post": Needs(permission="tools.change_session", sees="tools.view_session")},
    "services": {"get": Needs(permission="tools.view_toolservice")},
    "service": {"get": Needs(permission="tools.view_toolservice")},
    "service-new": dict.fromkeys(("get", "post"), Needs(permission="tools.add_toolservice")),
    "service-edit": dict.fromkeys(("get", "post"), Needs(permission="tools.change_toolservice")),
    "service-remove": dict.fromkeys(("get", "post"), Needs(permission="tools.delete_toolservice")),
    "service-decide": {
        "post": Needs(permission="tools.change_toolservice", body={"do": "reject", "digest": "x"})
    },
    "servers": {"get": Needs(permission="tools.view_mcpserver")},
    "server": {"get": Needs(permission="tools.view_mcpserver")},
    "server-new": dict.fromkeys(("get", "post"), Needs(permission="tools.add_mcpserver")),
    "server-edit": dict.fromkeys(("get", "post"), Needs(permission="tools.change_mcpserver")),
    "server-remove": dict.fromkeys(("get", "post"), Needs(permission="tools.delete_mcpserver")),
    "server-credentials": dict.fromkeys(
        ("get", "post"), Needs(permission="tools.change_mcpserver")
    ),
    # An owner that does not exist: refused before the server is contacted.
    "server-refresh": {
        "post": Needs(permission="tools.change_mcpserver", body={"owner": "agent:nobody"})
    },
    "server-import": {"post": Needs(permission="tools.add_tool")},
    # An owner that does not exist, who cannot be asked for consent.
    "server-connect": {
        "post": Needs(permission="tools.change_mcpserver", body={"owner": "nobody"})
    },
    "server-disconnect": {
        "post": Needs(permission="tools.change_mcpserver", body={"owner": "nobody"})
    },
    "server-client": dict.fromkeys(("get", "post"), Needs(permission="tools.change_mcpserver")),
    "oauth-callback": {"get": Needs()},
    "confirmations": {"get": Needs(permission="tools.view_confirmation")},
    "confirmations-decide": {
        "post": Needs(permission="tools.decide_confirmation", body={"one": f"approve {uuid4()}"})
    },
    "confirmation": {"get": Needs(permission="tools.view_confirmation")},
    "messages": {"get": Needs(permission="tools.view_message")},
    "channels": {"get": Needs(permission="tools.view_messagechannel")},
    "channel-try": {"post": Needs(permission="tools.change_messagechannel")},
    "channel-new": dict.fromkeys(("get", "post"), Needs(permission="tools.add_messagechannel")),
    "channel-edit": dict.fromkeys(("get", "post"), Needs(permission="tools.change_messagechannel")),
    "channel-key": dict.fromkeys(("get", "post"), Needs(permission="tools.change_messagechannel")),
    "channel-remove": dict.fromkeys(
        ("get", "post"), Needs(permission="tools.delete_messagechannel")
    ),
    "inbox": {"get": Needs()},
    "inbox-read": {"post": Needs(sees=NOBODY)},
    "batches": {"get": Needs()},  # the user's own, or all
    "batch": {"get": SEEN_EXECUTION},
    "batch-cancel": {
        "post": Needs(permission="tools.change_execution", sees="tools.view_execution")
    },
    "executions": {"get": Needs()},
    "execution": {"get": SEEN_EXECUTION},
    "execution-cancel": {
        "post": Needs(permission="tools.change_execution", sees="tools.view_execution")
    },
    "execution-output": {"get": SEEN_EXECUTION},
    "execution-retry": {
        "post": Needs(permission="tools.impersonate_agent", sees="tools.view_execution")
    },
    "execution-resolve": {
        "post": Needs(
            permission="tools.change_execution",
            sees="tools.view_execution",
            body={"outcome": "happened", "reason": "The recipient has it."},
        )
    },
    "audit": {"get": Needs(permission="audit.view_auditrecord")},
    "audit-record": {"get": Needs(permission="audit.view_auditrecord")},
    "audit-record-verify": {"get": Needs(permission="audit.view_auditrecord")},
    "audit-record-line": {"get": Needs(permission="audit.view_auditrecord")},
    "audit-verifier": {"get": Needs(permission="audit.view_auditrecord")},
    "audit-checkpoints": {"get": Needs(permission="audit.view_auditrecord")},
    "audit-note": {"get": Needs(permission="audit.view_auditrecord")},
    "audit-growth": {"get": Needs(permission="audit.view_auditrecord")},
    "alerts": {"get": Needs(permission="audit.view_auditrecord")},
    "alert-acknowledge": {"post": Needs(permission="audit.change_alert")},
    "alert-rules": {"get": Needs(permission="audit.view_auditrecord")},
    "alert-rule": dict.fromkeys(("get", "post"), Needs(superuser=True, everywhere=True)),
    "alert-rule-new": dict.fromkeys(("get", "post"), Needs(superuser=True)),
    "audit-exports": dict.fromkeys(("get", "post"), Needs(permission="audit.view_auditrecord")),
    # Only for the user who requested it: tests/ui/audit/test_audit_exports.py.
    "audit-export-file": {"get": Needs(sees=NOBODY)},
    "audit-export-remove": {"post": Needs(sees=NOBODY)},
    "channel-test": {"post": Needs(permission="audit.change_alertchannel")},
}
SERVICE_PLACES = (
    "api-tool-service", "api-service-state", "api-service-approve", "api-service-reject",
    "service", "service-edit", "service-remove", "service-decide",
)  # fmt: skip
SERVER_PLACES = (
    "server", "server-edit", "server-remove", "server-credentials", "server-refresh",
    "server-import", "server-connect", "server-disconnect", "server-client",
)  # fmt: skip
SCHEMA_PLACES = (
    "api-content-schema", "api-content-schema-version", "schema", "schema-edit", "schema-remove",
)  # fmt: skip
# tests/admin, tests/tools/web/test_probes.py, tests/tools/web/test_csp_reports.py
NOT_OURS = ("admin/", "healthz", "readyz", "metrics", "csp-report")


def every_address() -> dict[str, URLPattern]:
    """All routes of the resolver, by name."""

    def walk(patterns: Any, prefix: str) -> Iterator[tuple[str, URLPattern]]:
        for pattern in patterns:
            whole = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, whole)
            elif not whole.startswith(NOT_OURS):
                yield whole, pattern

    found = list(walk(get_resolver().url_patterns, ""))
    unnamed = [whole for whole, pattern in found if not pattern.name]
    assert not unnamed, f"give these addresses a name, and add a row to EXPECTED: {unnamed}"
    assert len({pattern.name for _, pattern in found}) == len(found), "two addresses share a name"
    return {str(pattern.name): pattern for _, pattern in found}


ADDRESSES = every_address()


# What grants, issues a secret, decides or destroys needs a recent authentication.
POWER = {
    ("post",): """
        api-enable api-change-approve api-change-reject api-restore api-resolve
        api-confirmation-approve api-confirmation-reject api-confirmations-decide
        api-confirmation-rules api-groups api-agents api-agent-tokens api-grants
        api-agent-token-rotate api-token-rotate
        api-organizations api-sandbox-profiles api-egress-credentials api-channels
        api-channel-key api-tool-services api-service-approve api-service-reject api-mcp-servers
        api-mcp-authorizations api-signing-keys api-signing-key-distrust api-audit-erasures
        catalog-change catalog-undo profile-token-new factor-app-remove factor-key-remove
        factor-codes single-sign-on-connect single-sign-on-disconnect tool-enable tool-restore
        tool-drift change-decide keys group-new group-change schema-remove settings-organization
        licenses-change license-tier licenses-undo agent-new agent-edit agent-bounds
        agent-resume agent-give agent-token-new service-new service-edit service-remove
        service-decide server-new server-edit server-remove server-credentials server-connect
        server-client confirmations-decide channel-new channel-edit channel-key channel-remove
        execution-resolve alert-rule alert-rule-new audit-exports
    """,
    ("get",): """
        api-export api-audit-export export tool-export knowledge-export audit-export-file
    """,
    ("put", "patch", "delete"): """
        api-confirmation-rule api-group api-sandbox-profile api-egress-credential
    """,
    ("delete",): """
        api-tool api-chain api-content-schema
    """,
    ("patch",): """
        api-agent api-organization api-tier
    """,
    ("patch", "delete"): """
        api-channel api-tool-service api-mcp-server
    """,
    ("get", "post"): """
        factor-app factor-key key-distrust
    """,
    ("put",): """
        api-mcp-oauth-client api-mcp-credential
    """,
}
ASKS = {
    (name, method)
    for methods, names in POWER.items()
    for name in names.split()
    for method in methods
}


def methods_of(name: str) -> set[str]:
    view: Any = ADDRESSES[name].callback
    made = getattr(view, "view_class", None) or getattr(view, "cls", None)
    allowed = view.view_initkwargs.get("http_method_names", METHODS)
    return {method for method in METHODS if hasattr(made, method) and method in allowed}


def bodiless(name: str) -> frozenset[str]:
    """The methods of a route that refuse a body from every caller."""
    view: Any = getattr(ADDRESSES[name].callback, "cls", None)
    return getattr(view, "bodiless", frozenset())


# --- the rows of both organizations ---------------------------------------------------------------


class Side:
    """An organization with one row of everything."""

    def __init__(self, organization: Organization, label: str) -> None:
        self.organization, self.label = organization, label
        self.by = factories.actor(organization)
        self.tool = factories.tool(organization, f"tool-{label}", group=[f"desk-{label}"])
        self.chain = self._chain()
        # Its distrust is also recorded beside the keys, which no rollback undoes: it signs nothing,
        # and later signatures use the next key.
        self.key = keys.rotate_key(organization=organization, by=self.by)
        self.newest_key = keys.rotate_key(organization=organization, by=self.by)
        self.agent = factories.agent(organization, f"bot-{label}", groups=["*"], permissions=["p"])
        factories.agent(organization, "twin")  # a body may name it: both organizations have one
        self.somebody = factories.person(organization)
        factories.token(self.agent.service_account)
        factories.token(self.somebody)
        browser = Client()
        browser.force_login(self.somebody, backend="tools.accounts.login.login.PeopleBackend")
        self.browser = PersonSession.objects.get(user=self.somebody)
        self.session = Session.objects.create(
            organization=organization, user=self.agent.service_account, agent=self.agent,
            groups=["default"], state="undefined",
        )  # fmt: skip
        profiles.create_profile(
            organization=organization, profile={"name": f"wall-{label}"}, by=self.by,
            everywhere=True,
        )  # fmt: skip
        credentials.create_credential(
            organization=organization, by=self.by,
            credential={"name": f"key-{label}", "header": "X-Key", "value": "Bearer x"},
        )  # fmt: skip
        content_schemas.create_schema(
            organization=organization, by=self.by,
            schema={"name": f"schema-{label}", "document": {"type": "object"}},
        )  # fmt: skip
        services.create_service(
            organization=organization, by=self.by,
            service={"id": f"service-{label}", "request_queue": "q", "response_queue": "r"},
        )  # fmt: skip
        confirmation_rules.create_rule(
            organization=organization, name=f"rule-{label}", by=self.by,
            wanted={"tool": "write_file"},
        )  # fmt: skip
        server = mcp_servers.create_server(
            organization=organization, by=self.by,
            server={
                "name": f"server-{label}", "url": "https://mcp.example/mcp",
                "credential_scope": "agent",
            },
        )  # fmt: skip
        McpOAuthClient.objects.create(server=server, client_id="crib")
        McpAuthorization.objects.create(
            server=server, owner=f"agent:{self.agent.pk}", url=server.url, sealed=b"x",
        )  # fmt: skip
        mcp_servers.set_credential(
            row=server, owner=f"agent:{self.agent.slug}", values={}, by=self.by
        )
        self.way, _ = message_channels.create_channel(
            organization=organization, by=self.by,
            channel={"name": f"way-{label}", "kind": "inbox"},
        )  # fmt: skip
        self.message = Message.objects.create(
            organization=organization, channel=self.way, channel_name=f"way-{label}", kind="inbox",
        )  # fmt: skip
        self.item = InboxItem.objects.create(message=self.message, user=self.somebody)
        self.alert = Alert.objects.create(
            organization=organization.slug, rule="r", severity="info", actor="a",
            message=f"m-{label}",
            count=1, first_at=timezone.now(), last_at=timezone.now(),
        )  # fmt: skip
        self.channel = AlertChannel.objects.create(
            organization=organization.slug, name=f"channel-{label}", kind="email",
            target=f"{label}@example.com",
        )  # fmt: skip

        self.export = AuditExport.objects.create(
            organization=organization.slug, format="jsonl", opened=False, asked_by="nobody",
            state="gone",
        )  # fmt: skip

    @cached_property
    def execution(self) -> Execution:
        return factories.execution(self.agent, self.tool.name, group=["*"])

    def _chain(self) -> str:
        text = {"name": "text", "type": "String", "description": "Any."}
        step = {"id": "one", "tool_name": self.tool.name, "parameters": {"text": "x"}}
        written = {"name": f"chain-{self.label}", "description": "A chain.", "steps": [step]}
        more = {"group": [f"desk-{self.label}"], "parameters": [text]}
        return factories.register(self.organization, chain_definition(written | more)).name

    @cached_property
    def run(self) -> Execution:
        return factories.execution(self.agent, self.chain, group=["*"])

    @cached_property
    def batch(self) -> Execution:
        builtins.install_builtins(organization=self.organization, by=self.by)
        one = {"tool_name": self.tool.name, "parameters": {"text": "x"}}
        return factories.execution(self.agent, "run_batch", group=["*"], inputs=[one])

    @cached_property
    def request(self) -> Execution:
        """A run with one step whose agent waits for the next reply."""
        run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(self.agent, group=["*"]))
        agent_runs.thought(run, 1, "I look first.", (self.tool.name, {"text": "x"}))
        agent_runs.acted(run, 1, self.tool.name, {"text": "x"}, observed='{"echo": "x"}')
        return run

    @cached_property
    def confirmation(self) -> Confirmation:
        factories.tool(self.organization, "held", requires_confirmation=True)
        waiting = factories.execution(self.agent, "held", group=["*"])
        return Confirmation.objects.get(execution=waiting)

    @cached_property
    def change(self) -> UpstreamChange:
        """A change of another tool, because this one stays open."""
        drifted = factories.tool(self.organization, "drifted")
        assert drifted.version is not None
        seen = drifted.version.definition | {"description": "Other words."}
        change = note_upstream(tool=drifted, seen=seen, by=self.by)
        assert change is not None
        return change

    def place(self, name: str) -> dict[str, Any]:
        """The values of the path parameters of the route `name`."""
        of_organization = name in {"api-organization", "api-tier-preview"}
        names = {
            **dict.fromkeys(("api-group", "group-change"), f"desk-{self.label}"),
            "api-sandbox-profile": f"wall-{self.label}",
            **dict.fromkeys(SCHEMA_PLACES, f"schema-{self.label}"),
            "api-egress-credential": f"key-{self.label}",
            **dict.fromkeys((*MCP_ADDRESSES, *SERVER_PLACES), f"server-{self.label}"),
            "api-confirmation-rule": f"rule-{self.label}",
            **dict.fromkeys(SERVICE_PLACES, f"service-{self.label}"),
            **dict.fromkeys(("api-tier", "api-tier-terms-preview"), "Core"),
            **dict.fromkeys(WAYS, f"way-{self.label}"),
        }
        mine = name in ("api-token", "api-token-rotate", *PROFILE)
        holder = self.somebody if mine else self.agent.service_account
        known = {
            "name": lambda: self.chain if name in CHAINS else names.get(name, self.tool.name),
            "owner": lambda: f"agent:{self.agent.slug}",
            "slug": lambda: self.organization.slug if of_organization else self.agent.slug,
            "version": lambda: "1.0.0",
            "number": lambda: 1,
            "tier_id": lambda: LicenseTier.objects.get(name="Core").pk,
            "run_id": lambda: self.run.pk,
            "batch_id": lambda: self.batch.pk,
            "request_id": lambda: self.request.pk,
            "execution_id": lambda: self.execution.pk,
            "session_id": lambda: self.browser.pk if name in PROFILE else self.session.pk,
            "change_id": lambda: self.change.pk,
            "key_id": lambda: self.key.key_id,
            "confirmation_id": lambda: self.confirmation.pk,
            "token_id": lambda: holder.tokens.earliest("pk").pk,
            "alert_id": lambda: self.alert.pk,
            "rule_id": lambda: AlertRule.objects.earliest("pk").pk,
            "export_id": lambda: self.export.pk,
            "channel_id": lambda: self.way.pk if name == "api-channel-bounces" else self.channel.pk,
            "message_id": lambda: self.message.pk,
            "item_id": lambda: self.item.pk,
            "record_id": lambda: self._records().earliest("pk").pk,
            "checkpoint_id": lambda: self._checkpoints().earliest("pk").pk,
            "factor_id": uuid4,
            "grant": lambda: grant_id(GrantRow("agent", self.agent.slug, "permission", "p")),
        }
        wanted = ADDRESSES[name].pattern.converters
        missing = set(wanted) - known.keys()
        assert not missing, f"tell Side.place what {missing} of {name} may be"
        return {part: known[part]() for part in wanted}

    def marks(self) -> set[str]:
        """Texts that occur only in an answer about these rows."""
        rows = (
            self.execution, self.run, self.batch, self.request, self.confirmation, self.change,
            self.session, self.message, self.item, self._records().earliest("pk"),
        )  # fmt: skip
        signs = {self.key.key_id, self.newest_key.key_id}
        return {f"-{self.label}", *signs, *(str(row.pk) for row in rows)}

    def _checkpoints(self) -> Any:
        return Checkpoint.objects.filter(log__name=self.organization.slug)

    def _records(self) -> Any:
        return AuditRecord.objects.filter(organization=self.organization.slug)


@dataclass(frozen=True)
class Kind:
    """A kind of caller and its authorization."""

    name: str
    client: Client
    headers: dict[str, str] = field(default_factory=dict)
    known: bool = True
    welcome: bool = True  # may act in the named organization
    home: str = "here"
    scopes: frozenset[str] = ALL
    permissions: frozenset[str] = frozenset()
    superuser: bool = False
    agent: bool = False
    session: bool = False
    part: bool = False  # its token has one of the four managing scopes
    narrowed: bool = False  # its token is narrowed to one tool

    def holds(self, permission: str, needs: Needs) -> bool:
        if permission in ("", NOBODY):
            return not permission
        return self.superuser or (self.agent and needs.owner) or permission in self.permissions


def permitted(*prefixes: str) -> list[Permission]:
    found = Permission.objects.select_related("content_type").filter(
        content_type__app_label__in=("tools", "audit")
    )
    return [one for one in found if one.codename.startswith(prefixes)]


def person(place: Organization, *held: Permission) -> User:
    made = factories.person(place)
    made.user_permissions.add(*held)
    return made


def with_role(place: Organization, role: Role) -> User:
    made = factories.person(place)
    made.groups.add(Group.objects.get(name=role.group))
    return made


def bearer(user: User, **limits: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {factories.token(user, **limits)}"}


@pytest.fixture(scope="module")
def sides(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, Side]]:
    """Two organizations, created once for all tests of this module; each request is rolled back."""
    with django_db_blocker.unblock():
        made = {
            label: Side(factories.organization(f"org-{uuid4().hex[:12]}"), label)
            for label in ("here", "there")
        }
        for side in made.values():
            sealer.seal_logs(side.organization.slug)
        yield made
        connection.close()


@pytest.fixture(scope="module")
def callers(sides: dict[str, Side]) -> list[Kind]:
    """Callers of the API, with bearer tokens except for the last."""
    here, there = sides["here"].organization, sides["there"].organization
    bot, suspended = sides["here"].agent, factories.agent(here)
    gone = bearer(bot.service_account)
    revoked = bot.service_account.tokens.latest("created_at")
    account_actions.revoke_token(token=revoked, by=factories.actor(here))
    stopped = bearer(suspended.service_account)
    account_actions.change_agent(agent=suspended, by=factories.actor(here), active=False)
    views, everything = permitted("view_"), permitted("")
    changer, chief = person(here, *everything), factories.superuser(here)
    foreign, visit = factories.superuser(there), {"X-Organization": here.slug}
    codes = {id(group): _codenames(group) for group in (views, everything)}
    managing = {"scopes": ["read", "execute", "manage"]}
    one_tool = {"tools": [sides["here"].tool.name]}
    browser = Client()
    browser.force_login(chief, backend="tools.accounts.login.login.PeopleBackend")
    return [
        Kind("nobody", Client(), known=False),
        Kind("suspended agent", Client(), stopped, known=False),
        Kind("revoked token", Client(), gone, known=False),
        Kind("agent that reads", Client(), bearer(bot.service_account, scopes=["read"]),
             scopes=READ, agent=True),
        Kind("agent that executes", Client(), bearer(bot.service_account),
             scopes=READ | EXECUTE, agent=True),
        Kind("agent whose token says manage", Client(), bearer(bot.service_account, **managing),
             agent=True),
        Kind("person without permissions", Client(), bearer(person(here), **managing)),
        Kind("person who views", Client(), bearer(person(here, *views), **managing),
             permissions=codes[id(views)]),
        Kind("person who changes", Client(), bearer(changer, **managing),
             permissions=codes[id(everything)]),
        Kind("personal token without manage", Client(),
             bearer(changer, scopes=["read", "execute"]), scopes=READ | EXECUTE,
             permissions=codes[id(everything)]),
        *(
            Kind(f"personal token with {part}", Client(),
                 bearer(changer, scopes=["read", "execute", part]),
                 scopes=READ | EXECUTE | {part}, permissions=codes[id(everything)], part=True)
            for part in PARTS
        ),
        Kind("superuser's token for one tool", Client(), bearer(chief, **managing, **one_tool),
             superuser=True, narrowed=True),
        Kind("superuser", Client(), bearer(chief, **managing), superuser=True),
        Kind("superuser of another organization here", Client(),
             bearer(foreign, **managing) | visit, superuser=True),
        Kind("person of another organization here without grant", Client(),
             bearer(person(there, *everything), **managing) | visit, welcome=False),
        Kind("agent of another organization", Client(),
             bearer(sides["there"].agent.service_account) | visit, scopes=READ | EXECUTE,
             agent=True, home="there"),
        Kind("person of another organization", Client(),
             bearer(person(there, *everything), **managing), home="there",
             permissions=codes[id(everything)]),
        Kind("superuser's browser", browser, superuser=True, session=True),
        *(
            Kind(role.label, Client(), bearer(with_role(here, role), **managing),
                 permissions=role.permissions)
            for role in roles()
        ),
    ]  # fmt: skip


def _codenames(found: list[Permission]) -> frozenset[str]:
    return frozenset(f"{one.content_type.app_label}.{one.codename}" for one in found)


@pytest.fixture(scope="module")
def browsers(sides: dict[str, Side]) -> list[Kind]:
    """Visitors of pages: logged-in people and others."""
    here, there = sides["here"].organization, sides["there"].organization
    views, everything = permitted("view_"), permitted("")
    approver = next(role for role in roles() if role.name == "approver")

    def enter(user: User) -> Client:
        client = Client()
        client.force_login(user, backend="tools.accounts.login.login.PeopleBackend")
        return client

    return [
        Kind("nobody", Client(), known=False),
        Kind("an agent's token", Client(), bearer(sides["here"].agent.service_account),
             known=False),
        Kind("a superuser's token", Client(), bearer(factories.superuser(here)), known=False),
        Kind("person without permissions", enter(person(here))),
        Kind("person who views", enter(person(here, *views)), permissions=_codenames(views)),
        Kind("person who changes", enter(person(here, *everything)),
             permissions=_codenames(everything)),
        Kind("superuser", enter(factories.superuser(here)), superuser=True),
        Kind("person of another organization", enter(person(there, *everything)),
             {"X-Organization": here.slug}, permissions=_codenames(everything), home="there"),
        Kind("superuser of another organization", enter(factories.superuser(there)),
             {"X-Organization": here.slug}, superuser=True, home="there"),
        *(
            Kind(role.label, enter(with_role(here, role)), permissions=role.permissions)
            for role in roles()
        ),
        Kind("approver of another organization",
             enter(with_role(there, approver)), home="there", permissions=approver.permissions),
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def _logged_in_recently(settings: Any) -> None:
    """The browsers log in once for all tests of this module, however slow the machine is."""
    settings.FRESH_SECONDS = 86_400


# --- the expected answers -------------------------------------------------------------------------


def expected(needs: Needs, kind: Kind, *, whose: str, page: bool, names_row: bool) -> Any:
    """The expected status class; `LOGIN` where a page redirects to the login."""
    if needs.anybody:
        return IN
    if not kind.known:
        return LOGIN if page else 401
    if not kind.welcome:
        return 404
    if not page and not needs.scopes <= kind.scopes:
        return 403
    mine = needs.of_tool and whose == "here"
    if kind.narrowed and needs.scopes & MANAGE and not mine:
        return 403
    if (needs.superuser and not kind.superuser) or (needs.session and not kind.session):
        return 403
    absent = names_row and not needs.everywhere and whose != kind.home
    if needs.people and kind.agent and not absent:
        return 403
    if needs.sees and (absent or not kind.holds(needs.sees, needs)):
        return 404
    if kind.narrowed and needs.other_tool:
        return 404
    theirs = needs.manages and not kind.agent and (kind.narrowed or not kind.scopes >= AGENTS)
    if theirs or not kind.holds(needs.permission, needs):
        return 403
    return 404 if absent else IN


def boundary(
    kinds: list[Kind], needs: Needs, *, whose: str, page: bool, names_row: bool
) -> list[Kind]:
    """Of the admitted callers the one with the fewest grants, and of those refused for one reason
    the one with the most: if a guard is wrong, one of them gets another answer."""

    def holdings(kind: Kind) -> tuple[bool, int, int]:
        return kind.superuser, len(kind.permissions), len(kind.scopes)

    reasons: dict[Any, list[Kind]] = defaultdict(list)
    for kind in kinds:
        wanted = expected(needs, kind, whose=whose, page=page, names_row=names_row)
        reason = (
            kind.known, kind.welcome, kind.agent, kind.home, needs.scopes <= kind.scopes,
            kind.holds(needs.permission, needs), kind.holds(needs.sees, needs), kind.narrowed,
        )  # fmt: skip
        reasons[wanted, (kind.part, kind.narrowed) if wanted == IN else reason].append(kind)
    return [
        min(found, key=holdings) if wanted == IN else max(found, key=holdings)
        for (wanted, _), found in reasons.items()
    ]


def answered(
    kind: Kind, method: str, path: str, body: Any, *, page: bool, htmx: bool = False
) -> Any:
    """The status class of the answer. The request's changes are rolled back."""
    cookies = copy.deepcopy(kind.client.cookies)
    headers = kind.headers | AS_JSON if path == "/api/schema/" else kind.headers
    if htmx:
        headers = headers | {"HX-Request": "true"}
    writes = Writes()
    with rolled_back(), connection.execute_wrapper(writes):
        sent: dict[str, Any] = {} if page else {"content_type": "application/json"}
        data = {"data": body} if method in {"post", "put", "patch"} else {}
        response = getattr(kind.client, method)(path, headers=headers, **data, **sent)
    kind.client.cookies = cookies  # restores a session that the request logged out
    for close in response._resource_closers if response.streaming else ():
        close()  # an event stream without a reader releases its place
    if response.status_code == 302 and response["Location"].startswith("/login/?"):
        got: Any = LOGIN
    elif response.status_code in (401, 403, 404, 405):
        got = response.status_code
    elif response.status_code >= 500:
        return f"{response.status_code} {response.content[:500]!r}"
    else:
        return IN
    return f"{got} and wrote {writes.found}" if writes.found else got


class Writes:
    """The tables that statements write, except those that a refusal may write."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        written = {" ".join(filter(None, parts)) for parts in WRITTEN.findall(sql)}
        self.found |= written - LEFT_BY_A_REFUSAL
        return execute(sql, params, many, context)


def paths_of(names: Iterable[str], sides: dict[str, Side]) -> dict[tuple[str, str], str]:
    """Paths by name and side, created before the first request because that writes rows."""
    paths = {
        (name, whose): reverse(name, kwargs=side.place(name))
        for name in names
        for whose, side in sides.items()
    }
    read_catalogs(*(side.organization for side in sides.values()))
    return paths


def wrong_answers(
    names: Iterable[str],
    table: dict[str, dict[str, Needs]],
    kinds: list[Kind],
    sides: dict[str, Side],
    *,
    page: bool,
    everybody: bool,
) -> list[str]:
    """A line for each caller with an unexpected answer."""
    wrong = []
    for (name, whose), path in paths_of(names, sides).items():
        names_row = bool(ADDRESSES[name].pattern.converters)
        if whose == "there" and not names_row:
            continue
        for method, needs in table[name].items():
            where: Any = {"whose": whose, "page": page, "names_row": names_row}
            edge = boundary(kinds, needs, **where)
            for kind in kinds if everybody else edge:
                wanted = expected(needs, kind, **where)
                if page and wanted == IN and not everybody:
                    continue  # each page has its own tests, and all callers run in the part
                # HTMX gets a refusal of one line. The page around it costs more to render than the
                # decision, so callers in both runs get the page in the part.
                htmx = page and wanted in (403, 404) and not (everybody and kind in edge)
                body = {} if method.upper() in bodiless(name) else needs.body
                got = answered(kind, method, path, body, page=page, htmx=htmx)
                if got != wanted and not (needs.refuses and got == 401):
                    wrong.append(f"{kind.name}: {method} {path} ({whose}): {got}, not {wanted}")
    return wrong


def opened_by_absent_methods(
    names: Iterable[str],
    table: dict[str, dict[str, Needs]],
    kinds: list[Kind],
    side: Side,
    *,
    page: bool,
    everybody: bool,
) -> list[str]:
    """A line for each method that is missing in the table and is not refused."""
    closed = {LOGIN if page else 401, 403, 404, 405}
    extremes = [kind for kind in kinds if kind.superuser or not kind.known]
    if not everybody:
        extremes = [extremes[0], next(kind for kind in extremes if kind.superuser)]
    wrong = []
    for (name, _), path in paths_of(names, {"here": side}).items():
        for method in {*METHODS, "trace"} - table[name].keys():
            for kind in extremes:
                got = answered(kind, method, path, {} if page else NONSENSE, page=page)
                if got not in closed:
                    wrong.append(f"{kind.name}: {method} {path}: {got}")
    return wrong


API = sorted(name for name in ADDRESSES if name.startswith("api-"))
UI = sorted(name for name in ADDRESSES if not name.startswith("api-"))


def families(names: list[str]) -> Any:
    """Several routes for each test: one alone spends more on setup than on its requests."""
    some = 10 if names is API else 5  # a page takes longer
    return pytest.mark.parametrize(
        "names", [pytest.param(few, id=f"{few[0]} to {few[-1]}") for few in batched(names, some)]
    )


callers_asked = pytest.mark.parametrize(
    "everybody", [False, pytest.param(True, marks=pytest.mark.part("authorization"))],
    ids=["boundary", "everybody"],
)  # fmt: skip


def test_every_address_of_the_api_has_its_row():
    unknown = sorted(set(API) - EXPECTED.keys())
    assert not unknown, f"add a row to EXPECTED for each of {unknown}"
    assert not EXPECTED.keys() - set(API), "these addresses are gone: take their rows out"


def test_every_method_of_the_api_has_its_row():
    wrong = {
        name: (methods_of(name), set(EXPECTED[name]))
        for name in API
        if methods_of(name) != set(EXPECTED.get(name, {}))
    }
    assert not wrong, f"add to EXPECTED what each of these methods needs: {wrong}"


def test_every_page_has_its_row():
    unknown = sorted(set(UI) - PAGES.keys())
    assert not unknown, f"add a row to PAGES for each of {unknown}"
    assert not PAGES.keys() - set(UI), "these pages are gone: take their rows out"


def every_change(table: dict[str, dict[str, Needs]]) -> set[tuple[str, str]]:
    return {(name, method) for name, row in table.items() for method in row.keys() - {"get"}}


def test_every_change_says_whether_it_gives_power():
    silent = [
        (name, method)
        for name, method in sorted(every_change(EXPECTED) | every_change(PAGES))
        if reauthentication.view_mark(ADDRESSES[name].callback, method.upper()) is None
    ]
    assert not silent, f"mark these views (tools/web/reauthentication.py): {silent}"


@pytest.fixture(scope="module")
def left_open(sides: dict[str, Side]) -> Kind:
    """A superuser's browser whose authentication is old."""
    client = Client()
    chief = factories.superuser(sides["here"].organization)
    client.force_login(chief, backend="tools.accounts.login.login.PeopleBackend")
    session = client.session
    session[login.AUTHENTICATED_AT] = 0
    session.save()
    return Kind("superuser's browser, proof old", client, superuser=True, session=True)


def asked_for_proof(kind: Kind, method: str, path: str, body: Any, *, page: bool) -> bool | str:
    writes = Writes()
    sent: dict[str, Any] = {} if page else {"content_type": "application/json"}
    data = {"data": body} if method in {"post", "put", "patch"} else {}
    cookies = copy.deepcopy(kind.client.cookies)
    with rolled_back(), connection.execute_wrapper(writes):
        response = getattr(kind.client, method)(path, **data, **sent)
    kind.client.cookies = cookies
    if response.streaming:
        for close in response._resource_closers:
            close()
        return False
    asked = (
        response.get("Location", "").startswith("/login/again/")
        or b"fresh_authentication_needed" in response.content
        or b'data-note="asks-for-proof"' in response.content
    )
    return f"asked, and wrote {writes.found}" if asked and writes.found else asked


def wrongly_asked(names: Any, table: dict, kind: Kind, side: Side, *, page: bool) -> list[str]:
    wrong = []
    for (name, _), path in paths_of(names, {"here": side}).items():
        for method, needs in table[name].items():
            if method == "get" and (name, method) not in ASKS:
                continue
            got = asked_for_proof(kind, method, path, needs.body, page=page)
            if got != ((name, method) in ASKS) and name != "login-again":
                wrong.append(f"{method} {path} ({name}): {got}")
    return wrong


@pytest.mark.usefixtures("document_made_once")
@families(API)
def test_an_old_proof_gives_no_power_over_the_api(names, left_open, sides):
    assert wrongly_asked(names, EXPECTED, left_open, sides["here"], page=False) == []


@families(UI)
def test_an_old_proof_gives_no_power_on_a_page(names, left_open, sides):
    assert wrongly_asked(names, PAGES, left_open, sides["here"], page=True) == []


@families(API)
def test_a_field_that_is_not_known_is_named(names, callers, sides):
    """Also beside known fields, and where a body is not expected."""
    chiefs = {
        kind.session: kind
        for kind in callers
        if kind.superuser and not kind.narrowed and not kind.headers.keys() - {"Authorization"}
    }
    wrong = []
    for (name, _), path in paths_of(names, {"here": sides["here"]}).items():
        for method in {"post", "put", "patch", "delete"} & EXPECTED[name].keys():
            needs = EXPECTED[name][method]
            if needs.refuses:
                continue  # unauthenticated callers are refused before
            chief = chiefs[needs.session]
            with rolled_back():
                response = chief.client.generic(
                    method, path, json.dumps(needs.body | NONSENSE), "application/json",
                    headers=chief.headers,
                )  # fmt: skip
            named = b"nonsense" in response.content or b"A body means nothing" in response.content
            if response.status_code != 400 or not named:
                wrong.append((method, path, response.status_code, response.content[:200]))
    assert wrong == []


@pytest.mark.usefixtures("document_made_once")
@callers_asked
@families(API)
def test_who_may_do_what_over_the_api(names, everybody, callers, sides):
    assert wrong_answers(names, EXPECTED, callers, sides, page=False, everybody=everybody) == []


@pytest.fixture
def _no_waiting(monkeypatch):
    """Pages of the workspace ask every gate, and then no sandbox."""
    read = Result(Status.FAILED, error_code="NOT_A_FILE")
    monkeypatch.setattr(workspace_reads, "_run", lambda question: read)


@pytest.mark.usefixtures("_no_waiting")
@callers_asked
@families(UI)
def test_who_may_do_what_on_a_page(names, everybody, browsers, sides):
    assert wrong_answers(names, PAGES, browsers, sides, page=True, everybody=everybody) == []


def read_of(kind: Kind, name: str, path: str) -> str:
    """The body of a GET that the caller may send. An endless stream is not read."""
    headers = kind.headers | AS_JSON if path == "/api/schema/" else kind.headers
    with rolled_back():
        response = kind.client.get(path, headers=headers)
    if response.streaming:
        for close in response._resource_closers:
            close()
        return ""
    return response.content.decode() if response.status_code == 200 else ""


def reading(
    kind: Kind, table: dict[str, dict[str, Needs]], sides: dict[str, Side], *, page: bool
) -> Iterator[tuple[str, str]]:
    """Each route that a caller may GET in its organization, with the body."""
    for (name, whose), path in paths_of(table, sides).items():
        needs = table[name].get("get")
        if needs is None or needs.anybody or whose != kind.home or name in WORKSPACE:
            continue
        where: Any = {"whose": whose, "page": page, "names_row": True}
        if expected(needs, kind, **where) == IN:
            yield name, read_of(kind, name, path)


LISTS = (
    "api-agents", "api-agent-requests", "api-alerts", "api-audit", "api-changes",
    "api-channels", "api-confirmation-rules", "api-confirmations", "api-content-schemas",
    "api-egress-credentials", "api-executions", "api-explain", "api-export", "api-grants",
    "api-groups", "api-mcp-servers", "api-messages", "api-requests", "api-sandbox-profiles",
    "api-sessions", "api-signing-keys", "api-state-graph", "api-tool-services", "api-tools",
    "agent-request-new", "agent-requests", "agents", "alerts", "audit", "batches", "catalog",
    "chains", "changes", "channels", "confirmations", "executions", "explain", "export", "groups",
    "home", "keys", "messages", "playground", "schemas", "servers", "services", "walk", "what-if",
    "workflow",
)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "table"), [("callers", EXPECTED), ("browsers", PAGES)], ids=["API", "pages"]
)
def test_no_answer_names_what_its_reader_may_not_see(request, asked, table, sides):
    """A superuser and an agent see nothing of the other organization, and a person without
    permissions nothing of either. Lists do name their own rows."""
    kinds = {kind.name: kind for kind in request.getfixturevalue(asked)}
    here, there = sides["here"], sides["there"]
    paths_of(table, sides)
    wrong, named = [], set()
    for name_of_kind, hidden in (
        ("superuser", there.marks()),
        ("agent that executes", there.marks()),
        ("person without permissions", here.marks() | there.marks()),
    ):
        if name_of_kind not in kinds:
            continue  # pages are for people
        for name, read in reading(kinds[name_of_kind], table, sides, page=table is PAGES):
            wrong += [f"{name_of_kind}: {name}: {mark}" for mark in hidden if mark in read]
            named |= {name} if any(mark in read for mark in here.marks()) else set()
    assert wrong == []
    assert {*LISTS} & table.keys() <= named


class Offers(HTMLParser):
    """The methods and paths of the links, forms and buttons of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self._method = "get"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        reported = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._method = reported.get("method", "get").lower()
        leads = {"href": "get", "hx-get": "get", "hx-post": "post", "action": self._method,
                 "formaction": self._method}  # fmt: skip
        self.found |= {
            (method, reported[name].partition("?")[0].partition("#")[0])
            for name, method in leads.items()
            if reported.get(name, "").startswith("/")
        }


OFFERED_ALL_THE_SAME = (
    "workspace", "knowledge", "execution-cancel",  # to all users, who may be refused
    # forms without a button: tests/ui/executions/test_batches.py
    "batch-cancel", "confirmations-decide",
    "profile-session-end",  # the user's own
)  # fmt: skip


@pytest.mark.parametrize(
    "reader",
    [
        pytest.param("person without permissions", marks=pytest.mark.part("authorization")),
        "person who views",
    ],
)
def test_no_page_offers_what_its_reader_may_not_do(reader, browsers, sides):
    (kind,) = [kind for kind in browsers if kind.name == reader]
    wrong = []
    for name, read in reading(kind, PAGES, sides, page=True):
        offers = Offers()
        offers.feed(read)
        for method, path in offers.found:
            led = resolve(path).url_name if is_valid_path(path) else ""
            needs = PAGES.get(led or "", {}).get(method)
            if needs is None or led in OFFERED_ALL_THE_SAME:
                continue
            if expected(needs, kind, whose="here", page=True, names_row=True) != IN:
                wrong.append(f"{name}: {method} {path}")
    assert wrong == []


def test_an_auditor_has_no_way_to_change_anything():
    """Except for its own: it lints drafts, makes calls that it was granted, which are none yet, has
    a profile and logs out."""
    auditor = next(role for role in roles() if role.name == "auditor")
    kind = Kind("auditor", Client(), permissions=auditor.permissions, session=True)
    opened = {
        name
        for page, table in ((False, EXPECTED), (True, PAGES))
        for name, methods in table.items()
        for method, needs in methods.items()
        if method != "get"
        and not needs.anybody
        and expected(needs, kind, whose="here", page=page, names_row=True) == IN
    }
    assert opened == {"api-lint", "logout", *OWN_CALLS}


@callers_asked
@families(API)
def test_a_method_that_is_not_there_opens_nothing(names, everybody, callers, sides):
    """Not even to callers with the most permissions."""
    here, asked = sides["here"], {"page": False, "everybody": everybody}
    assert opened_by_absent_methods(names, EXPECTED, callers, here, **asked) == []


@pytest.mark.part("authorization")
@callers_asked
@families(UI)
def test_a_method_that_a_page_has_not_opens_nothing(names, everybody, browsers, sides):
    here, asked = sides["here"], {"page": True, "everybody": everybody}
    assert opened_by_absent_methods(names, PAGES, browsers, here, **asked) == []


@pytest.mark.part("authorization")
@pytest.mark.usefixtures("document_made_once")
@callers_asked
@families(API)
def test_head_and_options_tell_no_more_than_get(names, everybody, callers, sides):
    """HEAD is answered like GET; OPTIONS describes the route to every authenticated caller."""
    wrong = []
    for (name, _), path in paths_of(names, {"here": sides["here"]}).items():
        where: Any = {"whose": "here", "page": False}
        where["names_row"] = bool(ADDRESSES[name].pattern.converters)
        opened = any(needs.anybody for needs in EXPECTED[name].values())
        needed = EXPECTED[name].get("get") or Needs()
        for kind in callers if everybody else boundary(callers, needed, **where):
            if get := EXPECTED[name].get("get"):
                wanted = expected(get, kind, **where)
                head = answered(kind, "head", path, None, page=False)
                if head != wanted:
                    wrong.append(f"{kind.name}: head {path}: {head}, not {wanted}")
            options = answered(kind, "options", path, None, page=False)
            may_read = opened or (kind.known and kind.welcome)
            if options not in ((IN, 403, 405) if may_read else (401, 404)):
                wrong.append(f"{kind.name}: options {path}: {options}")
    assert wrong == []
