"""Sends as much as it may on a hundred connections. When there is no room for half a second it says so, and goes on. In the end it compares the hashes
that come back."""

import hashlib
import random
import select
import socket
import sys

COUNT, BYTES = 100, 1_000_000
data = random.Random(1).randbytes(BYTES)
left = {}
poll = select.poll()
for _ in range(COUNT):
    connection = socket.socket()
    # What waits here isn't there.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32_768)
    connection.connect((sys.argv[1], 9440))
    connection.setblocking(False)
    left[connection.fileno()] = [connection, BYTES]
    poll.register(connection, select.POLLOUT)
was_stuck = False
while any(bytes for _, bytes in left.values()):
    ready = poll.poll(None if was_stuck else 500)
    if not ready:
        was_stuck = True
        print("stuck", flush=True)
    for fd, _ in ready:
        one = left[fd]
        try:
            one[1] -= one[0].send(data[-one[1] :])
        except BlockingIOError:
            pass
        if one[1] == 0:
            poll.unregister(fd)
expected = hashlib.sha256(data).digest()
for connection, _ in left.values():
    connection.setblocking(True)
    assert connection.recv(32, socket.MSG_WAITALL) == expected
print("whole", flush=True)
