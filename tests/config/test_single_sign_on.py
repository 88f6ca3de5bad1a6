"""What settings of an identity provider may say; what cannot be meant stops the start."""

from collections.abc import Callable

import pytest

from config.env import ROLES, BadSetting, env_choice, env_issuer, env_roles
from tools.accounts.login import second_factors
from tools.accounts.roles import roles


def test_the_roles_are_those_of_the_product() -> None:
    assert [role.name for role in roles()] == [*ROLES]


def test_groups_are_mapped_to_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_ROLES", "a=b c=approver, staff = viewer ,staff=auditor")
    assert env_roles("OIDC_ROLES") == {"a=b c": ["approver"], "staff": ["viewer", "auditor"]}


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (env_roles, "staff", "GROUP=ROLE"), (env_roles, "=viewer", "GROUP=ROLE"),
        (env_roles, "staff=chief", "GROUP=ROLE"), (env_roles, "staff=superuser", "GROUP=ROLE"),
        (env_issuer, "http://id.example", "https"),
    ],
)  # fmt: skip
def test_what_is_no_role_and_an_issuer_in_the_clear_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[str], object], value: str, message: str
) -> None:
    monkeypatch.setenv("OIDC_X", value)
    with pytest.raises(BadSetting, match=message):
        read("OIDC_X")


@pytest.mark.parametrize("value", ["https://id.example/realms/x", "http://127.0.0.1:9/x", ""])
def test_an_issuer_is_taken_as_it_is_written(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OIDC_ISSUER", value)
    assert env_issuer("OIDC_ISSUER") == value


def test_who_must_have_a_second_factor_is_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MFA_REQUIRED", "Everybody")
    assert env_choice("MFA_REQUIRED", "nobody", second_factors.MFA_POLICIES) == "everybody"
    monkeypatch.setenv("MFA_REQUIRED", "some")
    with pytest.raises(BadSetting, match="nobody, privileged, everybody"):
        env_choice("MFA_REQUIRED", "nobody", second_factors.MFA_POLICIES)
