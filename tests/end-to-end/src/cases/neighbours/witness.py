"""Talks to victim.py from outside until it is told to end (SIGTERM), and compares every byte. Prints a line
for each mebibyte that came back on one connection; with each a new connection, a datagram and a call of the
victim's went well, too."""

import random
import signal
import socket
import sys
import time

PIECE, MEBIBYTE = 1 << 16, 1 << 20
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))
draw = random.Random(7)
doors = socket.create_server(("", 9402))
doors.settimeout(2)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.settimeout(1)
datagrams.connect(("10.9.0.2", 9401))


def exchange(connection, data):
    connection.sendall(data)
    back = b""
    while len(back) < len(data):
        more = connection.recv(len(data) - len(back))
        assert more, f"the connection ended after {len(back)} of {len(data)} bytes"
        back += more
    assert back == data, "bytes came back changed"


def ask(data):
    for _ in range(15):
        try:
            datagrams.send(data)
            while datagrams.recv(1 << 16) != data:
                pass
            return
        except (TimeoutError, ConnectionRefusedError):
            continue
    raise SystemExit("no datagram came back")


def be_called(number):
    for _ in range(8):
        datagrams.send(b"call " + number)
        try:
            while True:
                connection, _ = doors.accept()
                with connection:
                    connection.settimeout(15)
                    heard = b""
                    while more := connection.recv(100):
                        heard += more
                if heard == number:
                    return
        except TimeoutError:
            continue
    raise SystemExit("the victim didn't call")


with socket.create_connection(("10.9.0.2", 9400), 15) as lasting:
    done = 0
    while not over:
        for _ in range(MEBIBYTE // PIECE):
            exchange(lasting, draw.randbytes(PIECE))
        with socket.create_connection(("fd09::2", 9400), 15) as fresh:
            exchange(fresh, draw.randbytes(1000))
        ask(b"echo %d " % done + draw.randbytes(1000))
        be_called(b"%d" % done)
        done += 1
        print("mark", done, flush=True)
        time.sleep(0.02)
    lasting.shutdown(socket.SHUT_WR)
    assert lasting.recv(1) == b"", "there is more"
print("whole", flush=True)
