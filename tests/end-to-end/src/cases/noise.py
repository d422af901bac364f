"""Sends frames that no honest host sends: noise.py KINDS SECONDS. Every run sends the same."""

import random
import socket
import struct
import subprocess
import sys
import time

kinds, seconds = sys.argv[1].split(","), float(sys.argv[2])
draw = random.Random(1)
number, some_bytes, one_of = draw.randrange, draw.randbytes, draw.choice
HERE = {4: socket.inet_pton(socket.AF_INET, "10.9.0.1"), 6: socket.inet_pton(socket.AF_INET6, "fd09::1")}
SKINK = {4: socket.inet_pton(socket.AF_INET, "10.9.0.2"), 6: socket.inet_pton(socket.AF_INET6, "fd09::2")}

# A connection makes the kernel ask for the address on the link.
socket.create_connection(("10.9.0.2", 80), timeout=5).close()
neighbour = subprocess.run(["ip", "neigh", "show", "10.9.0.2"], capture_output=True, text=True).stdout
THEIR_MAC = bytes.fromhex(neighbour.split("lladdr ")[1].split()[0].replace(":", ""))
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("wire", 0))
OUR_MAC = wire.getsockname()[4]


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ethernet(kind, payload):
    return THEIR_MAC + OUR_MAC + struct.pack("!H", kind) + payload


def ip(version, protocol, payload, source=None, identification=0, fragment=0):
    source = source or HERE[version]
    if version == 6:
        header = struct.pack("!IHBB", 0x60000000, len(payload), protocol, 64)
        return ethernet(0x86DD, header + source + SKINK[6] + payload)
    start = struct.pack("!BBHHHBB", 0x45, 0, 20 + len(payload), identification, fragment, 64, protocol)
    addresses = source + SKINK[4]
    sum_of_all = struct.pack("!H", checksum(start + b"\0\0" + addresses))
    return ethernet(0x800, start + sum_of_all + addresses + payload)


def transport(version, protocol, payload, at, source=None):
    """Puts the checksum in."""
    pseudo = (source or HERE[version]) + SKINK[version] + struct.pack("!II", len(payload), protocol)
    payload = payload[:at] + b"\0\0" + payload[at + 2 :]
    return payload[:at] + struct.pack("!H", checksum(pseudo + payload)) + payload[at + 2 :]


def tcp(version, flags, port=80, options=b"", payload=b"", source=None):
    options += b"\0" * (-len(options) % 4)
    words = (number(1024, 65536), port, number(1 << 32), number(1 << 32))
    rest = ((5 + len(options) // 4) << 4, flags, number(65536), 0, 0)
    segment = struct.pack("!HHIIBBHHH", *words, *rest) + options + payload
    return ip(version, 6, transport(version, 6, segment, 16, source), source)


def garbage():
    version, choice = one_of([4, 6]), number(4)
    if choice == 0:
        kinds = [0x800, 0x86DD, 0x806, 0x8100, 0x88A8, 0x8847, number(65536)]
        return ethernet(one_of(kinds), some_bytes(number(1500)))
    frame = tcp(version, number(256), one_of([80, number(65536)]), some_bytes(number(41)), some_bytes(number(900)))
    if choice == 1:
        return frame[: number(14, len(frame))]
    if choice == 2:
        frame = bytearray(frame)
        for _ in range(number(1, 6)):
            frame[number(14, len(frame))] = number(256)
    return bytes(frame)


def fragments():
    where = one_of([number(8192), 8191, 0, 1])
    if number(2):
        more = number(2) << 13
        return ip(4, one_of([1, 6, 17]), some_bytes(number(1400)), None, number(64), where | more)
    header = struct.pack("!BBHI", one_of([0, 6, 17, 44, 58]), 0, where << 3 | number(8), number(64))
    return ip(6, 44, header + some_bytes(number(1300)))


def icmp():
    # Errors about segments that may or may not be on their way, and echo requests.
    ports = struct.pack("!HHII", 80, number(1024, 65536), number(1 << 32), number(1 << 32))
    head, size = struct.pack("!HH", number(65536), one_of([0, 68, 576, 1280, 1500])), number(60)
    if number(2):
        inner = struct.pack("!BBHHHBBH", 0x45, 0, 1500, 0, 0, 64, 6, 0) + SKINK[4] + HERE[4] + ports
        body = head + inner[:size]
        start = struct.pack("!BB", one_of([3, 3, 4, 5, 8, 11, 12, number(256)]), number(16))
        return ip(4, 1, start + struct.pack("!H", checksum(start + b"\0\0" + body)) + body)
    inner = struct.pack("!IHBB", 0x60000000, 1400, 6, 64) + SKINK[6] + HERE[6] + ports
    start = struct.pack("!BBH", one_of([1, 2, 3, 4, 128, number(128)]), number(8), 0)
    return ip(6, 58, transport(6, 58, start + head + inner[:size], 2))


def resets():
    return tcp(one_of([4, 6]), one_of([4, 20, 1, 16, 17, 18, 24]), payload=some_bytes(number(3)))


def datagrams():
    version, payload = one_of([4, 6]), some_bytes(number(1400))
    length = one_of([8 + len(payload), number(65536)])
    header = struct.pack("!HHHH", number(65536), number(65536), length, 0)
    return ip(version, 17, transport(version, 17, header + payload, 6))


def requests():
    """Connection requests that nobody will complete."""
    version = one_of([4, 6])
    source = HERE[version][:-1] + bytes([number(3, 255)])
    options = b"\x02\x04\x05\xb4\x04\x02\x08\x0a" + some_bytes(4) + b"\0\0\0\0\x01\x03\x03\x07"
    return tcp(version, 2, options=options, source=source)


makers = [globals()[kind] for kind in kinds]
frames = [one_of(makers)() for _ in range(10_000)]
end, sent = time.monotonic() + seconds, 0
while time.monotonic() < end:
    for frame in frames[sent % len(frames) :][:100]:
        try:
            wire.send(frame)
        except OSError:
            pass  # Longer than the wire takes, or no room.
    sent += 100
print(f"{sent} frames sent")
