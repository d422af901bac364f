"""A program that says everything again, as user victim.py UID: TCP on 9400, UDP on 9401. Datagrams that
ask for it also make it call the one who asked on TCP 9402."""

import os
import selectors
import socket
import sys

# Python reads a module for this when it is needed, and that user may not.
"".encode("idna")
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
chosen = selectors.DefaultSelector()
doors = socket.create_server(("", 9400), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("10.9.0.2", 9401))
chosen.register(doors, selectors.EVENT_READ, None)
chosen.register(datagrams, selectors.EVENT_READ, None)
print("ready", flush=True)


def call(peer, number):
    with socket.create_connection((peer, 9402), 15) as caller:
        caller.sendall(number)


def echo(connection, waiting):
    if len(waiting) < 1 << 20:
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            data = None
        if data == b"":
            connection.setblocking(True)
            connection.sendall(waiting)
            chosen.unregister(connection)
            connection.close()
            return
        waiting += data or b""
    if waiting:
        try:
            del waiting[: connection.send(waiting)]
        except BlockingIOError:
            pass
    write = selectors.EVENT_WRITE if waiting else 0
    chosen.modify(connection, selectors.EVENT_READ | write, waiting)


while True:
    for key, _ in chosen.select():
        if key.fileobj is doors:
            connection, _ = doors.accept()
            connection.setblocking(False)
            chosen.register(connection, selectors.EVENT_READ, bytearray())
        elif key.fileobj is datagrams:
            data, peer = datagrams.recvfrom(1 << 16)
            if data.startswith(b"call "):
                call(peer[0], data[5:])
            datagrams.sendto(data, peer)
        else:
            try:
                echo(key.fileobj, key.data)
            except ConnectionError as error:
                print("a connection failed:", error, flush=True)
                chosen.unregister(key.fileobj)
                key.fileobj.close()
