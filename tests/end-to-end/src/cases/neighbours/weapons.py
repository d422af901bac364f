"""What intruder.py attacks with: all that a program on Skink has, past the library. The program's first argument is
the user id that it takes."""

import array
import ctypes
import errno
import fcntl
import glob
import itertools
import json
import mmap
import os
import random
import re
import resource
import select
import signal
import socket
import struct
import sys
import termios
import time

# Python reads a module for this when it is needed, and that user may not.
"".encode("idna")
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
CONTROL, TOKEN = os.environ.get("SKINK_CONTROL", ""), os.environ.get("SKINK_TOKEN", "")
OWN, PEER = "10.9.0.2", "10.9.0.1"
KINDS = {socket.SOCK_STREAM: 9400, socket.SOCK_DGRAM: 9401}
REUSE = [[], [socket.SO_REUSEADDR], [socket.SO_REUSEPORT], [socket.SO_REUSEADDR, socket.SO_REUSEPORT]]


def fails(call, *expected):
    try:
        call()
    except OSError as error:
        assert error.errno in expected, error
        return
    raise SystemExit(f"nothing stops {call} from what should fail with {expected}")


class Memory:
    """Memory that the process holds by a descriptor, as the library in it got it."""

    def __init__(self, fd, name):
        self.fd, self.name = fd, name
        self.size = os.fstat(fd).st_size
        self.writable = flags(fd) & os.O_RDWR != 0
        access = mmap.ACCESS_DEFAULT if self.writable else mmap.ACCESS_READ
        self.map = mmap.mmap(fd, self.size, access=access)
        # Each store is one store: `struct` would write zeros first.
        self.words = memoryview(self.map).cast("Q")

    def word(self, at):
        return self.words[at]

    def put(self, at, word):
        self.words[at] = word


def flags(fd):
    with open(f"/proc/self/fdinfo/{fd}") as info:
        return int(next(line for line in info if line.startswith("flags:"))[6:], 8)


def held(prefix, fds=None):
    """Descriptors, or those among `fds`, by what they are of."""
    for fd in map(int, os.listdir("/proc/self/fd")) if fds is None else fds:
        try:
            link = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if link.startswith(prefix):
            yield fd, link[len(prefix) :].split(" ")[0]


def memories(fds=None):
    return [Memory(fd, name) for fd, name in sorted(held("/memfd:skink-", fds))]


def channels(all):
    """To `syscall`, `tcp` and `udp`; or one for all."""
    return [Channel(all, number) for number in range(sum(m.name == "requests" for m in all) // 2)]


def ring():
    for fd, _ in held("anon_inode:[eventfd]"):
        try:
            os.write(fd, struct.pack("Q", 1))
        except OSError:
            pass


HEAD, ENTRIES = 16, 1024
SLOTS, SLOT, MESSAGE = 128, 64, "<IIII16sHB5xQIB3x"
OPEN, BIND, REST, LISTEN, CONNECT, ACCEPTED, SHARE, SENT, RECEIVED, SHUTDOWN, CLOSE, OPTION = range(1, 13)
TCP, UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP


class Channel:
    """The queue of requests to a process of the stack, and that of its notices, past the library."""

    def __init__(self, all, number):
        pick = lambda name, large: [m for m in all if m.name == name and (m.size > 4096) == large][number]
        self.requests, self.released = pick("requests", True), pick("requests", False)
        self.notices, self.freed = pick("notices", True), pick("notices", False)
        stamps = range(SLOTS // 8, (SLOTS + ENTRIES * SLOT) // 8, SLOT // 8)
        self.next, self.heard = max(map(self.requests.word, stamps)), self.freed.word(HEAD)

    def sent(self):
        """What the library asked for so far."""
        for number in range(min(self.next, ENTRIES)):
            yield struct.unpack_from(MESSAGE, self.requests.map, SLOTS + number * SLOT + 8)

    def wait(self, what):
        end = time.monotonic() + 15
        while not what():
            ring()
            assert time.monotonic() < end, "the stack doesn't answer"
            time.sleep(0.001)

    def ask(self, kind, serial=0, slot=0, generation=0, address=bytes(16), port=0, family=0, value=0, detail=0, protocol=TCP):
        self.wait(lambda: self.next - self.released.word(HEAD) < ENTRIES)
        at = SLOTS + self.next % ENTRIES * SLOT
        body = struct.pack(
            MESSAGE, kind, serial, slot, generation, address, port, family, value, detail, protocol
        )
        self.requests.map[at + 8 : at + SLOT] = body
        self.next += 1
        self.requests.put(at // 8, self.next)

    def answer(self, serial):
        """The socket and the error in the answer to a request."""
        while True:
            at = SLOTS + self.heard % ENTRIES * SLOT
            self.wait(lambda: self.notices.word(at // 8) == self.heard + 1)
            kind, number, slot, generation, *_, error, _ = struct.unpack_from(
                MESSAGE, self.notices.map, at + 8
            )
            self.heard += 1
            self.freed.put(HEAD, self.heard)
            if kind == 1 and number == serial:
                return slot, generation, error

    def settle(self):
        self.wait(lambda: self.released.word(HEAD) >= self.next)


def reach():
    broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    broker.settimeout(15)
    broker.connect("\0" + CONTROL[1:] if CONTROL.startswith("@") else CONTROL)
    return broker


def call(broker, **request):
    """The broker's reply, and the descriptors that came with it."""
    broker.send(json.dumps(request).encode())
    reply, control, _, _ = broker.recvmsg(1 << 18, 4096)
    if not reply:
        raise ConnectionResetError("the broker hung up")
    fds = array.array("i")
    for _, _, data in control:
        fds.frombytes(data)
    return json.loads(reply), list(fds)


def tell(broker, **request):
    """The broker's reply, and how many descriptors came with it, which aren't kept."""
    reply, fds = call(broker, **request)
    for fd in fds:
        os.close(fd)
    return reply, len(fds)


def version(broker):
    # Who speaks no version at all is told which one there is.
    refusal = json.dumps(tell(broker, request="attach", protocol=0, token=TOKEN)[0])
    return int(re.search(r"version (\d+) of the control protocol", refusal)[1])


def attach(broker):
    return tell(broker, request="attach", protocol=version(broker), token=TOKEN)[0]
