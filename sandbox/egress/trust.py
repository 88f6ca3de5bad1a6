"""The trusted certificate authorities."""

import importlib.util
import ssl
from collections.abc import Iterable
from pathlib import Path

# Where distributions keep theirs; Python knows only the place its OpenSSL was built for.
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def client_context(ca_file: str = "", bundles: Iterable[str] = SYSTEM_BUNDLES) -> ssl.SSLContext:
    """The system's authorities and one of the operator's own. Raises OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if bundle := system_bundle(bundles):
        context.load_verify_locations(bundle)
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


def system_bundle(bundles: Iterable[str] = SYSTEM_BUNDLES) -> str:
    """The system's file, which its administrator keeps; a wheel's only where there is none.

    Empty when there is neither: then no certificate is believed but the operator's own.
    """
    known = ssl.get_default_verify_paths().cafile
    for path in (known, *bundles):
        if path and Path(path).is_file():
            return path
    return _packaged_bundle()


def _packaged_bundle() -> str:
    found = importlib.util.find_spec("certifi")
    if found is None or found.origin is None:
        return ""
    return str(Path(found.origin).parent / "cacert.pem")
