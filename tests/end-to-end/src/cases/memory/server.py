"""Accepts a hundred connections, each with room for a mebibyte, and reads nothing until it gets SIGUSR1. Then it reads a million bytes of each, and
answers with their hash."""

import hashlib
import select
import signal
import socket
import sys

COUNT, BYTES = 100, 1_000_000
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
doors = socket.socket()
doors.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
doors.bind((sys.argv[1], 9440))
doors.listen(COUNT)
print("listens", flush=True)
kept = [doors.accept()[0] for _ in range(COUNT)]
signal.sigwait([signal.SIGUSR1])
poll = select.poll()
left = {}
for connection in kept:
    poll.register(connection, select.POLLIN)
    left[connection.fileno()] = [connection, BYTES, hashlib.sha256()]
while left:
    for fd, _ in poll.poll():
        one = left[fd]
        data = one[0].recv(1 << 20)
        if not data:
            raise SystemExit("a connection ended too early")
        one[2].update(data)
        one[1] -= len(data)
        if one[1] == 0:
            one[0].sendall(one[2].digest())
            poll.unregister(fd)
            del left[fd]
