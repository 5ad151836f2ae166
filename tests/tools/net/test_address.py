"""No form of a private address is reached, and the server on this machine never hears of it."""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from aiohttp import TCPConnector
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.tools.net import HttpClient, HttpError, HttpRefused, Outgoing, is_public

PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1"),
    *("100.100.100.200", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192"),
    *("192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1"),
    *("::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:53aa:64c::1", "2001:db8::1"),
    *("3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1"),
    *("5f00::1", "localhost", "", "1", "127.1"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "192.0.1.1", "100.128.0.1", "198.20.0.1"),
    *("2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@settings(max_examples=300)
@given(st.integers(0, 2**32 - 1))
def test_all_ways_to_carry_an_ipv4_address_agree_with_it(number: int) -> None:
    inner = IPv4Address(number)
    carried = (
        IPv6Address((0xFFFF << 32) | number),
        IPv6Address((0x64FF9B << 96) | number),
        IPv6Address((0x2002 << 112) | number << 80),
    )
    assert {is_public(str(each)) for each in carried} == {is_public(str(inner))}


@settings(max_examples=300)
@given(st.ip_addresses())
def test_nothing_is_public_that_python_knows_to_be_private(address) -> None:
    embedded = isinstance(address, IPv6Address) and (address.ipv4_mapped or address.sixtofour)
    known = ip_address(str(embedded or address))
    if known.is_private or known.is_loopback or known.is_link_local or known.is_multicast:
        assert not is_public(str(address))


# Everything that means this machine, or a private network, in a URL; the port is the site's.
FORMS = [
    "http://127.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.1:{port}/",
    "http://0x7F.0x0.0x0.0x1:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://00000000:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://localhost.:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[fe80::1]:{port}/",
    "http://[fd00::1]:{port}/",
    "http://example.com@127.0.0.1:{port}/",
    "http://example.com:80@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@example.com/",
    "http://example.com%00@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://127。0。0。1:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://127.0.0.1:{port}",
    "//127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://100.100.100.200/latest/meta-data/",
    "http://10.0.0.1:{port}/",
    "http://192.168.0.1:{port}/",
    "ftp://127.0.0.1:{port}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/",
    "unix:///var/run/docker.sock",
    "data:text/plain,secret",
    "HTTP://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\r\nHost: example.com",
    "http://a..b:{port}/",
    "http://" + "a" * 64 + ".com:{port}/",
    "http://[:{port}/",
    "http://127.0.0.1:99999/",
    "http://",
    "",
]


@pytest.mark.parametrize("form", FORMS)
async def test_a_form_of_a_private_address(public: HttpClient, site, form: str) -> None:
    with pytest.raises(HttpError):
        await public.file(Outgoing(form.format(port=site.port)))
    assert site.seen == []


# As a Location, "http:x" and "http:///x" are read as paths on the same host.
ABSOLUTE = [
    form for form in FORMS[:44] if form.isascii() and not form.startswith(("http:1", "http:///"))
]


@pytest.mark.parametrize("form", ABSOLUTE)
async def test_a_redirect_there(monkeypatch, site, form: str) -> None:
    """The first address counts as public here; where it redirects to does not."""
    monkeypatch.setattr(
        "caesura.tools.net.is_public", lambda text: text == "127.0.0.9" or is_public(text)
    )
    client = HttpClient(timeout_seconds=60)
    site.says("/go", status=302, Location=form.format(port=site.port))
    with pytest.raises(HttpError):
        await client.file(Outgoing(site.url("/go", host="127.0.0.9")))
    await client.aclose()
    assert len(site.seen) == 1


def resolve_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
    """Have names resolve to these addresses, one answer after the other."""
    left = list(answers)

    def getaddrinfo(host, port, *_, **__):
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def test_a_name_that_resolves_to_a_private_address(monkeypatch, public, site) -> None:
    resolve_to(monkeypatch, ["127.0.0.1"])
    with pytest.raises(HttpRefused, match=r"evil\.example has no public address"):
        await public.file(Outgoing(site.url(host="evil.example")))
    assert site.seen == []


async def test_a_name_with_several_addresses(monkeypatch, public, site) -> None:
    resolve_to(monkeypatch, ["127.0.0.1", "10.0.0.1", "169.254.169.254"])
    with pytest.raises(HttpRefused, match="has no public address"):
        await public.file(Outgoing(site.url(host="evil.example")))
    assert site.seen == []


async def test_a_name_that_changes_its_mind(monkeypatch, site) -> None:
    """DNS rebinding: what was asked first does not count, only where the connection goes."""
    resolve_to(monkeypatch, ["127.0.0.9"], ["127.0.0.1"])
    monkeypatch.setattr("caesura.tools.net.is_public", lambda text: text == "127.0.0.9")
    client = HttpClient(timeout_seconds=60)
    site.says("/", b"first", Connection="close")
    assert (await client.file(Outgoing(site.url(host="evil.example")))).data == b"first"
    # The name is resolved again once its entry has run out.
    connector = client._sessions[asyncio.get_running_loop()].connector
    assert isinstance(connector, TCPConnector)
    connector.clear_dns_cache()
    with pytest.raises(HttpRefused, match="has no public address"):
        await client.file(Outgoing(site.url(host="evil.example")))
    await client.aclose()
    assert len(site.seen) == 1


async def test_the_operator_may_allow_it(client, site) -> None:
    assert (await client.file(Outgoing(site.url(host="localhost")))).data == b"secret"


async def test_proxies_of_the_environment_are_not_used(monkeypatch, public, site) -> None:
    monkeypatch.setenv("http_proxy", site.url())
    with pytest.raises(HttpError):
        await public.file(Outgoing("http://10.0.0.1/"))
    assert site.seen == []
