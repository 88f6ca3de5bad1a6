"""What people carry about them, in software: an app that shows codes, a key that signs."""

import base64
import hashlib
import json
import os
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from fido2 import cbor
from fido2.cose import ES256
from fido2.webauthn import AttestedCredentialData, AuthenticatorData

HOST, ORIGIN = "testserver", "http://testserver"
PRESENT, VERIFIED = AuthenticatorData.FLAG.UP, AuthenticatorData.FLAG.UV


def code_of(secret: str, *, later_s: int = 0) -> str:
    """What an authenticator app shows, now or a little later or before."""
    totp = TOTP(base64.b32decode(secret.replace(" ", "")), 6, hashes.SHA1(), 30)
    return totp.generate(time.time() + later_s).decode()


class SoftKey:
    """A security key with one credential. What a test sets, it says."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.id = os.urandom(32)
        self.count = 0
        self.origin, self.host = ORIGIN, HOST
        self.flags = PRESENT | VERIFIED

    def create(self, options: str) -> str:
        public = ES256.from_cryptography_key(self.private.public_key())
        credential = AttestedCredentialData.create(b"\0" * 16, self.id, public)
        data = AuthenticatorData.create(
            self._host_hash(), self.flags | AuthenticatorData.FLAG.AT, self.count, credential
        )
        made = cbor.encode({"fmt": "none", "attStmt": {}, "authData": bytes(data)})
        client = self._client("webauthn.create", options)
        return self._answer({"attestationObject": _text(made), "clientDataJSON": _text(client)})

    def get(self, options: str) -> str:
        self.count += 1
        data = AuthenticatorData.create(self._host_hash(), self.flags, self.count)
        client = self._client("webauthn.get", options)
        signed = bytes(data) + hashlib.sha256(client).digest()
        signature = self.private.sign(signed, ec.ECDSA(hashes.SHA256()))
        return self._answer(
            {
                "authenticatorData": _text(bytes(data)),
                "clientDataJSON": _text(client),
                "signature": _text(signature),
            }
        )

    def _client(self, kind: str, options: str) -> bytes:
        challenge = json.loads(options)["challenge"]
        client_data = {"type": kind, "challenge": challenge, "origin": self.origin}
        return json.dumps(client_data).encode()

    def _host_hash(self) -> bytes:
        return hashlib.sha256(self.host.encode()).digest()

    def _answer(self, response: dict[str, Any]) -> str:
        named = {"id": _text(self.id), "rawId": _text(self.id), "type": "public-key"}
        return json.dumps({**named, "response": response, "clientExtensionResults": {}})


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
