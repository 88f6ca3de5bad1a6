"""Which certificates are believed."""

import ssl
import sys

import pytest

from sandbox.egress import dial


def test_the_systems_bundle_comes_first_then_the_places_of_distributions(tmp_path, monkeypatch):
    bundle = tmp_path / "bundle.pem"
    bundle.touch()
    places = ssl.get_default_verify_paths()
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: places._replace(cafile=None))
    assert dial.system_bundle([str(tmp_path / "none"), str(bundle)]) == str(bundle)


def test_a_packaged_bundle_serves_where_the_system_has_none(tmp_path, monkeypatch):
    places = ssl.get_default_verify_paths()
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: places._replace(cafile=None))
    (tmp_path / "certifi").mkdir()
    (tmp_path / "certifi" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "certifi", raising=False)  # a library may have loaded it
    assert dial.system_bundle([]) == str(tmp_path / "certifi" / "cacert.pem")


def test_without_any_bundle_only_the_operators_authority_is_believed(authority, monkeypatch):
    monkeypatch.setattr(dial, "system_bundle", lambda bundles: "")
    assert dial.client_context().get_ca_certs() == []
    assert len(dial.client_context(authority.file).get_ca_certs()) == 1


def test_names_and_certificates_are_checked_and_only_http_1_is_offered():
    context = dial.client_context()
    assert context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_file_without_certificates_is_an_error(tmp_path):
    (tmp_path / "empty.pem").touch()
    with pytest.raises(OSError):
        dial.client_context(str(tmp_path / "empty.pem"))
