#!/usr/bin/env python3
"""For how long nothing leaves the machine when a process of the stack is killed.

    sudo bench/recovery.py [--kills N] [--skink PATH] [TOPOLOGY/PROCESS ...]

A web server on Skink sends to a client on the kernel, over a veth pair between private network
namespaces; the client takes 100 MB/s. Each process is killed -9 N times, 1.5 s apart. Shown is the time
from the kill to the first segment of a successor on the wire, as tcpdump stamped it: the end of the
longest silence that begins no later than 5 ms after the kill, since what is on its way still leaves.
`none` is the same when nothing is killed: times of that size mean that nothing can be seen.
"""

import argparse, json, os, shutil, signal, statistics, struct, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACES = ["split/none", "split/link", "split/ip", "split/filter", "split/tcp", "single/stack"]
ADDRESS = "10.9.0.2"
RATE = 100_000_000
# Until then what was on its way has left, in seconds.
DRAINED = 0.005


def run(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


def pid_of(skink, name):
    for process in json.loads(run(skink, "ps", "--json"))["instances"][0]["processes"]:
        if process["name"] == name and process["state"] == "running":
            return process["pid"]


CLIENT = """
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
s.connect((sys.argv[1], 80))
s.sendall(b"GET /file HTTP/1.0\\r\\n\\r\\n")
rate, total, start = float(sys.argv[2]), 0, time.monotonic()
while True:
    data = s.recv(16384)
    if not data:
        sys.exit("the connection ended")
    total += len(data)
    now = time.monotonic()
    # What is missed in a silence isn't made up for.
    start = max(start, now - total / rate)
    time.sleep(max(0, start + total / rate - now))
"""


def stamps(path):
    """Times of a pcap file's packets, in seconds."""
    data = Path(path).read_bytes()
    nanoseconds = struct.unpack_from("<I", data)[0] == 0xA1B23C4D
    at, times = 24, []
    while at + 16 <= len(data):
        seconds, part, length, _ = struct.unpack_from("<IIII", data, at)
        if at + 16 + length > len(data):
            break
        times.append(seconds + part / (1e9 if nanoseconds else 1e6))
        at += 16 + length
    return times


def recovery(times, kill):
    """From the kill to the end of the longest silence that begins with it or soon after."""
    after = [kill] + [it for it in times if it >= kill]
    pairs = [(b - a, b - kill) for a, b in zip(after, after[1:]) if a <= kill + DRAINED]
    return max(pairs, default=(0, float("inf")))[1]


def measure(skink, topology, name, kills):
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
            file.truncate(int(RATE * (kills + 4) * 3))
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
        client = start(sys.executable, "-c", CLIENT, ADDRESS, str(RATE), peer=True)
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
        times = stamps(pcap)
        return [recovery(times, moment) * 1e3 for moment in moments]
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
    parser.add_argument("--skink", default=str(HERE.parent / "target/release/skink"))
    parser.add_argument("places", nargs="*", metavar="TOPOLOGY/PROCESS", default=PLACES)
    options = parser.parse_args()
    if os.environ.get("RECOVERY_INSIDE") is None:
        os.environ["RECOVERY_INSIDE"] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                              "--mount-proc", sys.executable, *sys.argv])
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("ip", "link", "set", "lo", "up")
    print(f"{'':16}{'median':>9}{'best':>9}{'worst':>9}   ms, {options.kills} times each")
    for place in options.places:
        topology, name = place.split("/")
        spans = measure(options.skink, topology, name, options.kills)
        print(f"{place:16}{statistics.median(spans):9.1f}{min(spans):9.1f}{max(spans):9.1f}   "
              + " ".join(f"{it:.0f}" for it in spans), flush=True)


main()
