"""The program that the conformance suite starts as its client: ours, with a person who consents.

Its last argument is the server's URL; scenario and context stand in the environment.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sandbox.egress.dial import Dialer, Resolver, client_context
from sandbox.egress.rules.addresses import AddressGate, read_network
from sandbox.egress.rules.grammar import Url
from tools.mcpclient.authorization_servers import AUTH_BASIC, ClientIdentity, Fetcher, OAuthClient
from tools.mcpclient.errors import InputRequired, Unauthorized
from tools.mcpclient.http_transports import StreamableHttpTransport
from tools.mcpclient.json_rpc import JsonRpcRequest
from tools.mcpclient.mcp_client import McpClient
from tools.mcpclient.oauth import (
    OAuthTokens,
    begin_authorization,
    finish_authorization,
    request_client_credentials,
)

BACK = "http://localhost:3000/callback"
DOCUMENT = "https://conformance-test.local/client-metadata.json"
MOST_TRIES = 8

type Work = Callable[[McpClient], Awaitable[None]]


@cache
def dialer(_scheme: str = "http") -> Dialer:
    opened = [read_network(one) for one in ("127.0.0.0/8", "::1/128")]
    return Dialer(Resolver(), AddressGate(opened), client_context())


class Person:
    """Has a server, and consents to whatever its authorization server asks."""

    def __init__(self, url: str, context: dict[str, Any]) -> None:
        self._url, self._fetch = url, Fetcher(dialer)
        self._tokens: OAuthTokens | None = None
        own = context.get("client_id")
        self._entered = OAuthClient(own, context.get("client_secret", "")) if own else None

    async def does(self, work: Work, *, alone: bool = False) -> None:
        """With new tokens as often as the server wants others. `alone`: no person consents."""
        for _ in range(MOST_TRIES):
            client = McpClient(
                StreamableHttpTransport(Url.parse(self._url), self._headers(), dialer())
            )
            try:
                return await work(client)
            except Unauthorized as refusal:
                again = self._by_itself if alone else self._consented
                self._tokens = await again(refusal)
            finally:
                await client.close()
        raise SystemExit("the server never has enough")

    def _headers(self) -> list[tuple[str, str]]:
        return [self._tokens.header] if self._tokens else []

    async def _consented(self, refusal: Unauthorized) -> OAuthTokens:
        identity = ClientIdentity(BACK, document=DOCUMENT, registered=self._entered)
        url, pending = await begin_authorization(
            self._fetch, self._url, identity, refusal.challenge, self._tokens
        )
        answer = await self._fetch("GET", url, [], b"")
        back = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
        return await finish_authorization(self._fetch, pending, back)

    async def _by_itself(self, refusal: Unauthorized) -> OAuthTokens:
        assert self._entered is not None
        own = OAuthClient(self._entered.id, self._entered.secret, AUTH_BASIC)
        return await request_client_credentials(
            self._fetch, self._url, own, refusal.challenge, self._tokens
        )


async def list_tools(client: McpClient) -> None:
    await client.list_tools()


async def call_each(client: McpClient) -> None:
    """With a value for all that is required."""
    for tool in (await client.list_tools()).tools.values():
        properties = tool.input_schema.get("properties", {})
        arguments = {name: _value(properties[name]) for name in properties}
        await client.call_tool(tool.name, arguments)


async def call_listed_tools(client: McpClient, context: dict[str, Any]) -> None:
    for call in context["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def confirm_each(client: McpClient) -> None:
    """Give what is asked for, after another call that must not know of it."""
    for name in (await client.list_tools()).tools:
        try:
            await client.call_tool(name, {})
        except InputRequired as wanted:
            await client.call_tool("test_mrtr_unrelated", {})
            answer = {"action": "accept", "content": {"confirmed": True}}
            more: dict[str, Any] = {"inputResponses": dict.fromkeys(wanted.requests, answer)}
            if wanted.state is not None:
                more["requestState"] = wanted.state
            await client.call_tool(name, {}, request=JsonRpcRequest("tools/call", more))


def _value(schema: dict[str, Any]) -> Any:
    kinds = {
        "string": "text",
        "number": 2,
        "integer": 2,
        "boolean": True,
        "array": [],
        "null": None,
    }
    return kinds.get(schema.get("type", ""), {})


async def main(url: str, scenario: str, context: dict[str, Any]) -> None:
    person = Person(url, context)
    if "toolCalls" in context:
        await person.does(lambda client: call_listed_tools(client, context))
    elif scenario == "sep-2322-client-request-state":
        await person.does(confirm_each)
    elif scenario == "json-schema-ref-no-deref":
        await person.does(list_tools)
    else:
        await person.does(call_each, alone=scenario.startswith("auth/client-credentials"))


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[-1],
            os.environ["MCP_CONFORMANCE_SCENARIO"],
            json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
        )
    )
