#!/usr/bin/env python3
"""For how long nothing leaves the machine when a process of the stack is killed, and when a bulk flow is itself again.

    sudo bench/recovery.py [--kills N] [--rate MB] [--plot DIRECTORY] [--skink PATH] [TOPOLOGY/PROCESS ...]

A web server on Skink sends to a client on the kernel, over a veth pair between private network
namespaces; the client takes 100 MB/s, or as much as comes with --rate 0. Each process is killed -9 N times,
1.5 s apart. Shown is first the time from the kill to the first segment of a successor on the wire, as tcpdump
stamped it: the end of the longest silence that begins no later than 5 ms after the kill, since what is on its
way still leaves. Then how much later the flow is back: the begin of the first 20 ms in which it has 90% of the
rate that it had in the second before the kill. `none` is the same when nothing is killed: times of that size
mean that nothing can be seen. --plot draws the rate over time (NewtOS, figures 2.4 and 2.5), one SVG for each.
"""

import argparse, bisect, json, os, shutil, signal, statistics, struct, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACES = ["split/none", "split/link", "split/ip", "split/filter", "split/tcp", "single/stack"]
ADDRESS = "10.9.0.2"
# How much of its rate a flow needs to count as back, and for how long, in seconds.
PART, WINDOW = 0.9, 0.02
# How long each point of a plot is, in seconds.
BIN = 0.01
# Until then what was on its way has left, in seconds.
DRAINED = 0.005


def run(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


def pid_of(skink, name):
    for process in json.loads(run(skink, "ps", "--json", "--sample", "0"))["instances"][0]["processes"]:
        if process["name"] == name and process["state"] == "running":
            return process["pid"]


CLIENT = """
import socket, sys, time
s = socket.socket()
if float(sys.argv[2]):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
s.connect((sys.argv[1], 80))
s.sendall(b"GET /file HTTP/1.0\\r\\n\\r\\n")
rate, total, start = float(sys.argv[2]), 0, time.monotonic()
while True:
    data = s.recv(16384 if rate else 262144)
    if not data:
        sys.exit("the connection ended")
    total += len(data)
    now = time.monotonic()
    # What is missed in a silence isn't made up for.
    if rate:
        start = max(start, now - total / rate)
        time.sleep(max(0, start + total / rate - now))
"""


def frames(path):
    """Times of a pcap file's packets, in seconds, and how long each was, in bytes."""
    data = Path(path).read_bytes()
    nanoseconds = struct.unpack_from("<I", data)[0] == 0xA1B23C4D
    at, found = 24, []
    while at + 16 <= len(data):
        seconds, part, kept, length = struct.unpack_from("<IIII", data, at)
        if at + 16 + kept > len(data):
            break
        found.append((seconds + part / (1e9 if nanoseconds else 1e6), length))
        at += 16 + kept
    return found


class Flow:
    """What was seen of a flow on the wire."""

    def __init__(self, frames, kills):
        self.times = [time for time, _ in frames]
        self.kills = kills
        self.sums = [0]
        for _, length in frames:
            self.sums.append(self.sums[-1] + length)

    def carried(self, begin, end):
        """Bytes between two moments."""
        return self.sums[bisect.bisect_left(self.times, end)] - self.sums[bisect.bisect_left(self.times, begin)]

    def first(self, kill):
        """From the kill to the end of the longest silence that begins with it or soon after."""
        after = [kill] + self.times[bisect.bisect_left(self.times, kill):bisect.bisect(self.times, kill + 1.5)]
        pairs = [(b - a, b - kill) for a, b in zip(after, after[1:]) if a <= kill + DRAINED]
        return max(pairs, default=(0, float("inf")))[1]

    def back(self, kill):
        """From the first segment until the flow is itself again."""
        begin = kill + self.first(kill)
        enough = PART * WINDOW * self.carried(kill - 1, kill)
        after = [begin] + self.times[bisect.bisect_left(self.times, begin):]
        return next((at - begin for at in after if self.carried(at, at + WINDOW) >= enough), float("inf"))

    def svg(self, title):
        """The rate over time, from half a second before the first kill to a second after the last."""
        begin, end = self.kills[0] - 0.5, self.kills[-1] + 1
        rates = [self.carried(begin + n * BIN, begin + (n + 1) * BIN) / BIN / 1e6
                 for n in range(int((end - begin) / BIN))]
        top, width, height = max(rates) * 1.05, 900, 240
        x = lambda time: 60 + (width - 80) * time / (end - begin)
        y = lambda rate: height - 40 - (height - 70) * rate / top
        text = lambda at_x, at_y, what, anchor="middle": f'<text x="{at_x:.0f}" y="{at_y:.0f}" text-anchor="{anchor}">{what}</text>'
        line = lambda a, b, c, d, colour: f'<path d="M{a:.1f},{b:.1f}L{c:.1f},{d:.1f}" stroke="{colour}"/>'
        points = " ".join(f"{x(n * BIN):.1f},{y(rate):.1f}" for n, rate in enumerate(rates))
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="none">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *(line(x(kill - begin), y(0), x(kill - begin), y(top), "#d33") for kill in self.kills),
            f'<polyline points="{points}" stroke="#225" stroke-width="1.2"/>',
            line(x(0), y(0), x(end - begin), y(0), "black"),
            '<g fill="black">',
            *(text(x(second), height - 24, second) for second in range(int(end - begin) + 1)),
            *(text(54, y(rate) + 4, f"{rate:.0f}", "end") for rate in (0, top / 2, top)),
            text(width / 2, 18, f"{title}: MB/s on the wire in spans of 10 ms; red: kill -9"),
            text(width / 2, height - 6, "seconds"),
            "</g></svg>\n",
        ])


def measure(skink, topology, name, kills, rate):
    children = []

    def start(*words, peer=False):
        if peer:
            words = ("nsenter", f"--net=/proc/{holder.pid}/ns/net", *words)
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        children.append(child)
        return child

    files = Path(tempfile.mkdtemp())
    try:
        holder = start("unshare", "--net", "sleep", "infinity")
        time.sleep(0.3)
        run("ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", str(holder.pid))
        run("ip", "link", "set", "wire", "up")
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        run(*inside, "ip", "addr", "add", "10.9.0.1/24", "dev", "wire")
        run(*inside, "ip", "link", "set", "wire", "up")
        with open(files / "file", "wb") as file:
            file.truncate(int((rate or 5e9) * (kills + 4) * 3))
        (files / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {files}/pid; error_log stderr; events {{}} "
            f"http {{ access_log off; sendfile off; server {{ listen 80; root {files}; }} }}"
        )
        start(skink, "up", "--name", "recovery", "--topology", topology,
              "--nic", "packet:wire", "--addr", f"{ADDRESS}/24")
        time.sleep(1.5)
        start(skink, "run", "--name", "recovery", "--", "nginx", "-c", str(files / "nginx.conf"))
        time.sleep(1)
        pcap = files / "pcap"
        capture = start("tcpdump", "-i", "wire", "-n", "-s", "64", "-U", "--time-stamp-precision=nano",
                        "-w", str(pcap), f"tcp and src host {ADDRESS}", peer=True)
        time.sleep(0.5)
        client = start(sys.executable, "-c", CLIENT, ADDRESS, str(rate), peer=True)
        moments = []
        for _ in range(kills):
            time.sleep(1.5)
            if client.poll() is not None:
                raise SystemExit(f"{topology}/{name}: the connection was lost")
            pid = pid_of(skink, name) if name != "none" else None
            moments.append(time.time())
            if pid:
                os.kill(pid, signal.SIGKILL)
        time.sleep(1.5)
        capture.terminate()
        capture.wait()
        return Flow(frames(pcap), moments)
    finally:
        for child in reversed(children):
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
        shutil.rmtree(files, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=float, default=100, metavar="MB")
    parser.add_argument("--plot", type=Path, metavar="DIRECTORY")
    parser.add_argument("--skink", default=str(HERE.parent / "target/release/skink"))
    parser.add_argument("places", nargs="*", metavar="TOPOLOGY/PROCESS", default=PLACES)
    options = parser.parse_args()
    if os.environ.get("RECOVERY_INSIDE") is None:
        os.environ["RECOVERY_INSIDE"] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                              "--mount-proc", sys.executable, *sys.argv])
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("ip", "link", "set", "lo", "up")
    print(f"ms, median and worst of {options.kills}\n{'':16}{'first segment':>15}{'back, after that':>21}   first segments")
    for place in options.places:
        topology, name = place.split("/")
        flow = measure(options.skink, topology, name, options.kills, options.rate * 1e6)
        first, back = ([of(kill) * 1e3 for kill in flow.kills] for of in (flow.first, flow.back))
        shown = (f"{statistics.median(it):9.1f}{max(it):8.1f}" for it in (first, back))
        print(f"{place:16}" + "    ".join(shown) + "   " + " ".join(f"{it:.0f}" for it in first), flush=True)
        if options.plot:
            (options.plot / f"recovery-{topology}-{name}.svg").write_text(flow.svg(place))


main()
