# A program that means ill: it shares a stack with victim.py. weapons.py stands before this. What it does is the
# second argument; the rest are that one's.


def sit(kind, port, address, options):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, kind) as seat:
        for option in options:
            seat.setsockopt(socket.SOL_SOCKET, option, 1)
        seat.bind((address, port))
        if kind == socket.SOCK_STREAM:
            seat.listen()


def bind():
    """By the calls that every program has."""
    for (kind, port), options in itertools.product(KINDS.items(), REUSE):
        addresses = [OWN, "0.0.0.0"] + (["fd09::2", "::"] if kind == socket.SOCK_STREAM else [])
        for address in addresses:
            fails(lambda: sit(kind, port, address, options), errno.EADDRINUSE)
    for kind, address in itertools.product(KINDS, ["10.9.0.77", PEER, "fd09::77"]):
        fails(lambda: sit(kind, 0, address, []), errno.EADDRNOTAVAIL)
    for family, kind in [(socket.AF_INET, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW)]:
        fails(lambda: socket.socket(family, kind, socket.IPPROTO_ICMP), errno.EPERM)
    fails(lambda: sit(socket.SOCK_STREAM, 80, OWN, []), errno.EACCES)


def forge():
    """By writing into its own queue what its library never would, and by asking the broker."""
    doors = socket.create_server((OWN, 9410))
    seat = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    seat.bind((OWN, 9411))
    for wait in (doors.accept, lambda: seat.recv(1)):
        doors.settimeout(0.01)
        seat.settimeout(0.01)
        try:
            wait()
        except TimeoutError:
            pass
    all = channels(memories())
    calls, direct = all[0], {TCP: all[len(all) > 1], UDP: all[-1]}
    # The tables have as many slots for each program, and the victim was first.
    first = {sent[-1]: sent[2] for sent in calls.sent() if sent[0] == BIND}
    assert min(first.values()) >= 64, first
    serial = itertools.count(1 << 20)

    def ask(kind, *rest, **more):
        number = next(serial)
        calls.ask(kind, number, *rest, **more)
        return calls.answer(number)

    here, port_of = socket.inet_aton(OWN) + bytes(12), {TCP: 9400, UDP: 9401}
    for protocol, reuse, ticket in itertools.product((TCP, UDP), range(4), (0, 1, random.getrandbits(64))):
        slot, generation, error = ask(OPEN, protocol=protocol)
        assert error == 0 and slot >= first[protocol], (slot, error)
        for address in (here, bytes(16)):
            wanted = (slot, generation, address, port_of[protocol], 4, ticket, reuse, protocol)
            *_, error = ask(BIND, *wanted)
            assert error != 0, f"port {port_of[protocol]} is bound twice"
        calls.ask(CLOSE, 0, slot, generation, protocol=protocol)
    draw = random.Random(3)
    for round in range(30_000):
        # The other's sockets, all generations that there may be. None of these is answered.
        slot, generation = draw.randrange(48), draw.randrange(6 if round % 2 else 64)
        kind, protocol = draw.choice([ACCEPTED, SENT, RECEIVED, SHUTDOWN, OPTION]), draw.choice([TCP, UDP])
        if protocol == UDP:
            kind = SENT
        channel = direct[protocol]
        if round % 3 == 0:
            kind, channel = CLOSE, calls
        value, detail = draw.choice([draw.getrandbits(64), draw.randrange(4)]), draw.randrange(1, 16)
        if kind == SHUTDOWN:
            detail = draw.randrange(1, 4)
        address, port, family = draw.randbytes(16), draw.randrange(1 << 16), draw.choice([0, 4, 6])
        channel.ask(kind, 0, slot, generation, address, port, family, value, detail, protocol)
    for channel in all:
        channel.settle()
    for kind, protocol in itertools.product((BIND, REST, LISTEN, CONNECT, SHARE), (TCP, UDP)):
        for slot, generation in itertools.product(range(6), range(1, 5)):
            secret = draw.choice([0, 1, draw.getrandbits(64)])
            *_, error = ask(kind, slot, generation, here, 9999, 4, secret, 3, protocol)
            assert error != 0, f"a request of kind {kind} about another's socket succeeded"
    regions()


def regions():
    """Nobody hands out another's memory, whatever secret is named."""
    stranger = reach()
    try:
        reply, fds = tell(stranger, request="region", program=0, secret=0)
        assert reply["reply"] == "refused" and fds == 0, reply
    except ConnectionError:
        pass
    broker = reach()
    attachment = attach(broker)["attachment"]
    draw = random.Random(4)
    guesses = [0, 1, (1 << 64) - 1, attachment["secret"], attachment["secret"] ^ 1]
    guesses += [draw.getrandbits(64) for _ in range(200)]
    for guess, program in itertools.product(guesses, range(2)):
        assert program != attachment["program"]
        try:
            reply, fds = tell(broker, request="region", program=program, secret=guess)
            assert reply["reply"] == "refused" and fds == 0, reply
        except ConnectionError:
            broker.close()
            broker = reach()
            attach(broker)
    for path in glob.glob("/run/skink*/*.sock") + glob.glob("/tmp/skink-*/*.sock"):
        for request in [
            {"request": "open", "owner": 0, "kind": "tcp-send-rings"},
            {"request": "open", "owner": 0, "kind": "tcp-receive-rings"},
            {"request": "list"},
            {"request": "load-filter"},
        ]:
            tools = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                tools.connect(path)
                reply, fds = tell(tools, **request)
                assert reply["reply"] == "refused" and fds == 0, reply
            except OSError:
                pass


def flood():
    """Requests without pause."""
    garbage = random.Random(5).randbytes(60_000)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setblocking(False)
    while True:
        for _ in range(50):
            try:
                datagrams.sendto(garbage, (PEER, 9))
            except OSError:
                pass
        for _ in range(20):
            try:
                with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
                    caller.setblocking(False)
                    caller.connect_ex((PEER, 9))
                    for value in range(20):
                        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, value % 2)
            except OSError:
                pass


def exhaust():
    """All sockets, all places, all requests that it can have."""
    taken = []
    for kind in KINDS:
        for count in range(20_000):
            try:
                seat = socket.socket(socket.AF_INET, kind)
                seat.bind((OWN, 0))
                if kind == socket.SOCK_STREAM:
                    seat.listen(4096)
                taken.append(seat)
            except OSError as error:
                print("sockets:", count, error, flush=True)
                break
    for seat in taken[-1500:]:
        seat.close()
    for child in range(2):
        if os.fork() == 0:
            flood()
        print("forked", flush=True)
    places = []
    for count in range(400):
        try:
            broker = reach()
            reply = attach(broker)
        except OSError as error:
            reply = {"reply": str(error)}
        if reply["reply"] != "served":
            print("places:", count, reply, flush=True)
            break
        places.append(broker)
    print("holding", flush=True)
    flood()


def listen():
    """Takes connections, and answers each with a byte."""
    doors = socket.create_server((OWN, 9410), backlog=512)
    print("ready", flush=True)
    kept = []
    while True:
        kept.append(doors.accept()[0])
        try:
            kept[-1].send(b"x")
        except OSError:
            pass
        del kept[:-500]


def hoard():
    """Accepts nobody, and has as much room for what each of them sends as there may be."""
    doors = socket.socket()
    doors.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    doors.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    doors.bind((OWN, 9410))
    doors.listen(4096)
    print("ready", flush=True)
    poll = select.poll()
    poll.register(doors, 0)
    poll.poll()


def fill():
    """The other side of `hoard`."""
    kept = []
    for _ in range(1000):
        kept.append(socket.create_connection((OWN, 9410), 15))
        kept[-1].sendall(bytes(1_000_000))
    print("filled", flush=True)
    signal.pause()


def crowd():
    """The other side of `listen`, on the kernel's stack: calls and sends, whatever becomes of it."""
    kept, garbage = [], bytes(100_000)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    doors = socket.create_server((PEER, 9403), backlog=512)
    doors.setblocking(False)
    while True:
        try:
            kept.append(doors.accept()[0])
            kept[-1].setblocking(False)
        except OSError:
            pass
        caller = socket.socket()
        caller.setblocking(False)
        caller.connect_ex((OWN, int(sys.argv[3])))
        kept.append(caller)
        for other in kept:
            try:
                other.send(garbage)
            except OSError:
                pass
        try:
            datagrams.sendto(b"x", (OWN, 9411))
        except OSError:
            pass
        del kept[:-300]
        time.sleep(0.002)


def unwritable(memory):
    """What the library got for reading can't be had for writing."""
    fails(lambda: os.open(f"/proc/self/fd/{memory.fd}", os.O_RDWR), errno.EACCES, errno.EPERM)
    fails(lambda: os.fchmod(memory.fd, 0o666), errno.EPERM)
    fails(lambda: os.ftruncate(memory.fd, 0), errno.EINVAL, errno.EPERM, errno.EBADF)


def spoil():
    """Writes nonsense to all memory that it may write, and goes on calling."""
    draw = random.Random(int(sys.argv[3]))
    signal.alarm(20)
    doors = socket.create_server((OWN, 9410), backlog=64)
    doors.setblocking(False)
    open_ones = []

    def call_about():
        attempts = [
            lambda: open_ones.append(doors.accept()[0]),
            lambda: open_ones.append(socket.create_connection((PEER, 9403), 0.05)),
            lambda: open_ones.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
            lambda: draw.choice(open_ones).sendto(draw.randbytes(5000), (PEER, 9)),
            lambda: draw.choice(open_ones).send(draw.randbytes(5000)),
            lambda: draw.choice(open_ones).recv(5000),
            lambda: open_ones.pop(draw.randrange(len(open_ones))).close(),
            lambda: draw.choice(open_ones).shutdown(draw.randrange(3)),
        ]
        for attempt in draw.choices(attempts, k=4):
            try:
                attempt()
                open_ones[-1].settimeout(0.01)
            except (OSError, IndexError, ValueError):
                pass

    for _ in range(20):
        call_about()
    all = memories()
    mine = [memory for memory in all if memory.writable]
    names = sorted(memory.name for memory in mine)
    print("writable:", names, flush=True)
    expected = {"requests", "notices", "sleep-program", "tcp-send-rings", "udp-send-rings"}
    assert expected <= set(names), names
    assert not {"tcp-receive-rings", "udp-receive-rings", "tcp-records", "udp-records"} & set(names), names
    for memory in all:
        if not memory.writable:
            unwritable(memory)
    # Some end in the first round; others are left to go on for a while.
    gentle = draw.random() < 0.5
    print("spoiling", flush=True)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for memory in mine:
            if gentle and memory.name in ("requests", "notices") and draw.random() < 0.9:
                continue
            words = memory.size // 8
            for _ in range(64):
                at = draw.randrange(draw.choice([words, min(words, 64), min(words, 4096)]))
                memory.put(at, draw.choice([draw.getrandbits(64), draw.randrange(4096), 0, (1 << 64) - 1]))
        ring()
        if draw.random() < 0.5:
            # The library in this process believes the memory, too: it may well not survive.
            call_about()
    libc = ctypes.CDLL("libc.so.6")
    for fd, _ in itertools.chain(*map(held, ["/memfd:skink-", "anon_inode:", "pipe:", "socket:"])):
        # Past the preload library.
        if fd > 2:
            libc.close(fd)
    call_about()


def silence():
    """Lets what it is rung by fill up, has what it rings by block whoever else uses it, takes back what it has rung, and
    at last closes everything, while the stack has much to tell it."""
    broker = reach()
    # No library takes part in this: it would empty the pipe.
    _, fds = call(broker, request="attach", protocol=version(broker), token=TOKEN)
    # The first is its bell; there are side bells behind.
    pipe, *_ = [fd for fd, _ in held("pipe:", fds)]
    bells = [fd for fd, _ in held("anon_inode:[eventfd]", fds)]
    all = channels(memories(fds))
    assert len(bells) == len(all), fds
    [page] = [memory for memory in memories(fds) if memory.name == "sleep-program"]
    for fd in fds:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags(fd) & ~os.O_NONBLOCK)
    size = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
    draw, serial, waiting = random.Random(6), itertools.count(1), array.array("i", [0])

    def ask(kind, *rest, **more):
        number = next(serial)
        # Who tells it anything has to ring, each time.
        page.put(HEAD, 2 * number + 1)
        all[0].ask(kind, number, *rest, **more)
        slot, generation, error = all[0].answer(number)
        assert error == 0, error
        return slot, generation

    while waiting[0] < size:
        slot, generation = ask(OPEN, protocol=UDP)
        all[0].ask(CLOSE, 0, slot, generation, protocol=UDP)
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)
        assert next(serial) < 4 * size, waiting
    for protocol, port in (TCP, 9410), (UDP, 9411):
        slot, generation = ask(OPEN, protocol=protocol)
        ask(BIND, slot, generation, socket.inet_aton(OWN) + bytes(12), port, 4, 0, 0, protocol)
        if protocol == TCP:
            ask(LISTEN, slot, generation, detail=4096)
    print("full", flush=True)
    number, end = 1 << 40, time.monotonic() + 3
    while time.monotonic() < end:
        for bell in bells:
            number += 2
            page.put(HEAD, number + 1)
            # The most that it takes, or anything.
            os.write(bell, struct.pack("Q", draw.choice([(1 << 64) - 2, 1])))
            try:
                os.preadv(bell, [bytearray(8)], -1, os.RWF_NOWAIT)
            except BlockingIOError:
                pass
    for fd in fds:
        os.close(fd)
    print("closed", flush=True)
    signal.pause()


{f.__name__: f for f in (bind, forge, exhaust, listen, hoard, fill, crowd, spoil, silence)}[sys.argv[2]]()
print("done", flush=True)
