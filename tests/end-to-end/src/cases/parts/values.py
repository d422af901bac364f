# Stores values in redis and reads them back, over several connections: values.py ADDRESS SECONDS
import os, random, socket, sys, threading, time

start = time.monotonic()
rounds = 0


def client(number):
    global rounds
    chance = random.Random(number)
    with socket.create_connection((sys.argv[1], 6379), 20) as s:
        f = s.makefile("rwb")

        def ask(*words):
            f.write(b"*%d\r\n" % len(words))
            for word in words:
                f.write(b"$%d\r\n%b\r\n" % (len(word), word))
            f.flush()
            return f.readline()

        while time.monotonic() < start + float(sys.argv[2]):
            key = b"key-%d-%d" % (number, chance.randrange(20))
            value = chance.randbytes(chance.choice([0, 1, 100, 1460, 5000, 100000]))
            said = ask(b"SET", key, value)
            assert said == b"+OK\r\n", f"SET was answered by {said!r}"
            said = ask(b"GET", key)
            assert said == b"$%d\r\n" % len(value), f"GET was answered by {said!r}"
            assert f.read(len(value)) == value, "GET answered another value"
            assert f.read(2) == b"\r\n", "GET answered more"
            rounds += 1


def guarded(number):
    try:
        client(number)
    except BaseException as error:
        print(f"connection {number} after {time.monotonic() - start:.1f} s: {error!r}", flush=True)
        os._exit(1)


threads = [threading.Thread(target=guarded, args=[number]) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if rounds < 100:
    sys.exit(f"only {rounds} values were stored and read")
