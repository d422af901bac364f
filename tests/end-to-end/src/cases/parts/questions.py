# Sends datagrams to an echo server: questions.py ADDRESS SECONDS
# Any may be lost, and one may come back twice, but each must be as it was.
import random, socket, sys, time


def question(number):
    chance = random.Random(number)
    size = chance.choice([0, 1, 500, 1464, 1465, 5000])
    return number.to_bytes(8, "big") + chance.randbytes(size)


s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.1)
s.connect((sys.argv[1], 5353))
start = time.monotonic()
asked = answered = 0
last = -1


def ask():
    global asked, answered, last
    s.send(question(asked))
    asked += 1
    while last < asked - 1:
        try:
            answer = s.recv(65536)
        except TimeoutError:
            return
        number = int.from_bytes(answer[:8], "big")
        if number >= asked or answer != question(number):
            sys.exit(f"{len(answer)} bytes came back that were not asked, after {asked} questions")
        last = max(last, number)
    answered += 1


while time.monotonic() < start + float(sys.argv[2]):
    try:
        ask()
    except OSError as error:
        sys.exit(f"question {asked} after {time.monotonic() - start:.1f} s: {error!r}")
if answered * 2 < asked:
    sys.exit(f"only {answered} of {asked} questions were answered")
for attempt in range(50):
    ask()
    if last == asked - 1:
        break
else:
    sys.exit("no question is answered any more")
