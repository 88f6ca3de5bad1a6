"""Proof that who redeems a code is who asked for it (RFC 7636, S256)."""

import base64
import hashlib
import secrets

CODE_CHALLENGE_METHOD = "S256"


def new_code_verifier() -> str:
    return secrets.token_urlsafe(48)


def code_challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
