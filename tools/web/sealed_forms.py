"""Encrypts forms and their state into pages, which the browser carries from step to step.

A form that waits for reauthentication is bound to the session and the address; the state of a
form with several steps is bound to the user and the form. A page that is seen, stored or
forwarded reveals nothing of them, and what is written is what the user saw.
"""

import base64
import binascii
import json
import os
import time
import zlib
from io import BytesIO
from typing import Any
from uuid import uuid5

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.files.uploadedfile import InMemoryUploadedFile
from django.http import HttpRequest, QueryDict
from django.utils.datastructures import MultiValueDict

from tools.catalog.signatures import sealed_texts
from tools.errors import Malformed
from tools.models import User

SEALED_FORM_S = 3600
_NONCE_BYTES = 12
_PURPOSE = b"toolcrib form that waits for proof"
_STATE_UNREADABLE = "What you gave before cannot be read any more. Give it again."


class SealedFormInvalid(Exception):
    """The form expired, or is of another session or address, or of another SECRET_KEY."""


def seal_form(request: HttpRequest, *, without: tuple[str, ...]) -> str | None:
    """The encrypted form with its files; None where they are too large for a page."""
    fields = [
        (name, str(value))
        for name, values in request.POST.lists()
        if name not in without
        for value in values
    ]
    files = [
        (field, file.name, file.content_type, base64.b64encode(file.read()).decode())
        for field, sent in request.FILES.lists()
        for file in sent
    ]
    said = json.dumps({"at": time.time(), "fields": fields, "files": files})
    nonce = os.urandom(_NONCE_BYTES)
    body = _cipher().encrypt(nonce, zlib.compress(said.encode()), _associated_data(request))
    sealed = base64.urlsafe_b64encode(nonce + body).decode()
    return sealed if len(sealed) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 2 else None


def restore_form(request: HttpRequest, sealed: str) -> None:
    """Put the decrypted form and its files into the request. Raises `SealedFormInvalid`."""
    try:
        raw = base64.urlsafe_b64decode(sealed.encode())
        body = _cipher().decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _associated_data(request))
    except (ValueError, InvalidTag):
        raise SealedFormInvalid from None
    said: dict[str, Any] = json.loads(zlib.decompress(body))
    if time.time() - said["at"] > SEALED_FORM_S:
        raise SealedFormInvalid
    form = QueryDict(mutable=True)
    for name, value in said["fields"]:
        form.appendlist(name, value)
    files: MultiValueDict[str, Any] = MultiValueDict()
    for field, name, kind, content in said["files"]:
        data = base64.b64decode(content)
        file = InMemoryUploadedFile(BytesIO(data), field, name, kind, len(data), None)
        files.appendlist(field, file)
    request.POST = form  # type: ignore[assignment]
    request._files = files  # type: ignore[attr-defined]


def seal_state(raw: Any, user: User, form: str) -> str:
    packed = base64.b85encode(zlib.compress(json.dumps(raw).encode(), 6)).decode()
    return base64.b64encode(sealed_texts.seal(packed, **_sealing_context(user, form))).decode()


def open_state(text: str, user: User, form: str) -> Any:
    """Raises `Malformed` for a text that was not sealed here, for this user and this form."""
    try:
        packed = sealed_texts.unseal(
            base64.b64decode(text, validate=True), **_sealing_context(user, form)
        )
    except (sealed_texts.UnreadableSealedText, binascii.Error, ValueError):
        raise Malformed(_STATE_UNREADABLE, code="not_kept") from None
    return json.loads(zlib.decompress(base64.b85decode(packed)))


def _associated_data(request: HttpRequest) -> bytes:
    return json.dumps([request.session.session_key, request.get_full_path()]).encode()


def _cipher() -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, None, _PURPOSE).derive(settings.SECRET_KEY.encode()))


def _sealing_context(user: User, form: str) -> dict[str, Any]:
    return {
        "organization": user.organization_id,
        "row": uuid5(user.pk, form),
        "purpose": sealed_texts.IMPORT,
    }
