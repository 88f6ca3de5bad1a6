"""The table of what is not public, form by form."""

from ipaddress import ip_address, ip_network

import pytest

from sandbox.egress.rules import addresses
from sandbox.egress.rules.addresses import AddressGate, is_own_address, read_network, special

SPECIAL = [
    # This network, private, shared, loopback, link-local
    "0.0.0.0", "0.0.0.1", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0",
    "100.127.255.255", "127.0.0.1", "127.255.255.254", "169.254.0.1", "169.254.169.254",
    "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255",
    # Metadata services wherever they lie
    "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
    # Assignments, documentation, benchmarks, multicast, reserved, broadcast
    "192.0.0.0", "192.0.0.9", "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1",
    "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.254", "255.255.255.255",
    # IPv6 outside the public eighth, and what is special in it
    "::", "::1", "::2", "100::1", "200::1", "400::1", "1000::1", "4000::1", "5f00::1", "8000::1",
    "fc00::1", "fd00::1", "fdff:ffff::1", "fe80::1", "febf::1", "fec0::1", "feff::1", "ff02::1",
    "ffff::1", "2001:db8::1", "2001:0:1::1", "2001:1::1", "2001:2::1", "2001:3::1", "2001:10::1",
    "2001:20::1", "2001:30::1", "2001:1ff::1", "2620:4f:8000::1", "3ffe::1", "3fff::1",
    "3fff:fff::1",
    # An IPv4 address inside another, whatever it is
    "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::8.8.8.8", "::ffff:0:7f00:1",
    "::ffff:0:808:808", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b::6464:64c8", "64:ff9b:1::808:808", "64:ff9b:1:7f00:1::", "64:ff9b:2::808:808",
    "2002:7f00:1::1", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2a00::5efe:7f00:1", "2a00::200:5efe:a00:1", "2a00::5efe:808:808", "fe80::5efe:808:808",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255",
    "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0",
    "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "203.0.112.255",
    "203.0.114.0", "223.255.255.255", "2000::1", "2001:200::1", "2001:4860:4860::8888",
    "2606:4700::1111", "2a00:1450:4001::1", "2003::1", "3ffd::1", "3fff:1000::1",
    "64:ff9b::808:808",
]  # fmt: skip


@pytest.mark.parametrize("text", SPECIAL)
def test_what_is_not_public_has_a_reason(text):
    assert special(ip_address(text))
    assert AddressGate().refusal(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_public_has_none(text):
    assert special(ip_address(text)) == ""


def test_an_address_with_a_zone_is_not_public():
    assert special(ip_address("2a00::1%eth0")) == "reserved"


def test_this_machine_knows_its_own_addresses():
    assert is_own_address(ip_address("127.0.0.1"))
    assert is_own_address(ip_address("::1"))
    assert not is_own_address(ip_address("8.8.8.8"))
    assert not is_own_address(ip_address("2606:4700::1111"))


def test_a_public_address_of_this_machine_is_refused(monkeypatch):
    monkeypatch.setattr(addresses, "_SPECIAL_IPV4", ())
    assert AddressGate().refusal(ip_address("127.0.0.1")) == "an address of this machine"
    assert AddressGate().refusal(ip_address("64:ff9b::7f00:1")) == "an address of this machine"


def test_what_cannot_be_looked_at_is_refused(monkeypatch):
    def exhausted(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(addresses.socket, "socket", exhausted)
    assert AddressGate().refusal(ip_address("8.8.8.8"))


def test_an_opened_network_is_let_through_and_nothing_beside_it():
    gate = AddressGate([ip_network("10.1.0.0/16"), ip_network("fd00:1::/32")])
    assert [gate.refusal(ip_address(one)) for one in ("10.1.255.1", "fd00:1::9")] == ["", ""]
    assert gate.is_opened(ip_address("10.1.0.1"))
    for text in ("10.2.0.1", "::ffff:10.1.0.1", "64:ff9b::a01:1", "fd00:2::1", "169.254.169.254"):
        assert gate.refusal(ip_address(text)), text


@pytest.mark.parametrize("text", ["10.0.0.0/8", "fc00::/7", "192.168.1.5/32", "192.168.1.5"])
def test_an_operator_may_open_a_private_network(text):
    assert read_network(text).prefixlen >= 7


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "0.0.0.0/0", "::/0", "128.0.0.0/1", "intranet"])
def test_an_operator_may_not_open_half_the_world_or_mean_two_things(text):
    with pytest.raises(ValueError):
        read_network(text)
