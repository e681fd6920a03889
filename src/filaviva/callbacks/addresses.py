"""Which addresses a callback may go to: looked up once, checked, and then connected to as they are.

A name that is looked up again for the connection may lead somewhere else by then.
"""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias

from filaviva.errors import Terminal

Address: TypeAlias = IPv4Address | IPv6Address

# 64:ff9b::/96 leads to the IPv4 address in its last 32 bits, wherever that may be.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# So does what follows these in an interface's name (ISATAP, RFC 5214).
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
# Ranges of which not every Python knows, or that it takes for public as long as nobody uses them.
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(one)
    for one in ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "3fff::/20", "fec0::/10")
)

# Threads of their own: a name server that does not answer keeps one for half a minute, whoever
# waits for it. The loop's own threads do what must not wait.
_LOOKING: Final = ThreadPoolExecutor(max_workers=32, thread_name_prefix="callback names")


def is_public(address: Address) -> bool:
    """Tell whether an address, and each that is hidden in it, belongs to the public internet."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return all(is_public(inner) for inner in _inside(address))


def _inside(address: Address) -> list[IPv4Address]:
    if isinstance(address, IPv4Address):
        return []
    hidden = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        hidden.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [inner for inner in hidden if inner is not None]


async def look_up(host: str, port: int, *, allow_private: bool = False) -> str:
    """Give an address of a host to connect to; Terminal if any of its addresses is not public.

    OSError when it cannot be looked up now.
    """
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKING, ask)
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not addresses:
        raise OSError(f"{host} has no address")
    inside = [one for one in addresses if not is_public(ipaddress.ip_address(one))]
    if inside and not allow_private:
        raise Terminal(f"{host} is at {inside[0]}, expected a public address")
    return addresses[0]
