#!/usr/bin/env python3
"""What a program is left with while another one on the same stack takes all that it can get.

    sudo bench/neighbours.py [--skink SKINK] [--seconds N] [--greedy send,receive,datagrams] [--nic packet|xdp]
                             [--topologies kernel,single,split] [--output FILE]

On a veth pair between two namespaces that it makes: a program that sends on one connection, and a redis that one client asks, alone
first, and then beside an iperf3 that sends (or receives) on 100 connections, or sends datagrams from 20 sockets, without end. So with the
kernel's stack, `single` and `split`, on AF_PACKET with segmentation, or on AF_XDP without (the kernel's too then). Shown are the shares of what each had alone, and what that was.
One run of each; repeat it, since the machine's noise is in them. --skink takes another build, beside which its libskink.so lies.

Needs root, iperf3 and redis, for AF_XDP ethtool too; leave the machine alone meanwhile.
"""

import argparse, json, os, signal, subprocess, sys, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS, PEER = "10.9.0.2", "10.9.0.1"
GREEDY = {"send": ["-P", "100"], "receive": ["-R", "-P", "100"], "datagrams": ["-u", "-b", "0", "-l", "1400", "-P", "20"]}
MARK = os.getpid()
NAME, SERVER, CLIENT = f"neighbours-{MARK}", f"neighbours-{MARK}-s", f"neighbours-{MARK}-c"


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Scene:
    """Both ends, and all that runs there."""

    def __init__(self, skink, topology, nic="packet"):
        self.started, self.skink = [], skink
        self.within = ["ip", "netns", "exec", SERVER]
        self.outside = ["ip", "netns", "exec", CLIENT]
        for name in SERVER, CLIENT:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", SERVER, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", CLIENT)
        for name in SERVER, CLIENT:
            run("ip", "-n", name, "link", "set", "wire", "up")
            if nic == "xdp":
                run("ip", "netns", "exec", name, "ethtool", "-K", "wire", "tso", "off", "gso", "off", "gro", "on")
        run("ip", "-n", CLIENT, "addr", "add", f"{PEER}/24", "dev", "wire")
        if topology == "kernel":
            run("ip", "-n", SERVER, "addr", "add", f"{OURS}/24", "dev", "wire")
            self.program = self.within
        else:
            up = [skink, "up", "--topology", topology, "--nic", f"{nic}:wire", "--addr", f"{OURS}/24", "--name", NAME]
            log = self.start(self.within + up, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
            if not any(": ready (" in line for line in log):
                sys.exit(f"skink up --topology {topology} ended without being ready")
            self.program = self.within + [skink, "run", "--name", NAME, "--"]
        for port in "5201", "5202":
            self.start(self.outside + ["iperf3", "-s", "-p", port])
        self.start(self.program + ["redis-server", "--save", "", "--protected-mode", "no"])
        time.sleep(1.5)

    def start(self, command, **where):
        where = where or {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.started.append(subprocess.Popen(command, start_new_session=True, **where))
        return self.started[-1]

    def measure(self, seconds):
        """Bits sent per second, requests answered per second, and the median of their times in milliseconds."""
        sent = json.loads(run(*self.program, "iperf3", "-c", PEER, "-p", "5202", "-t", str(seconds), "-J"))
        ask = ["timeout", "--signal=INT", "60", "redis-benchmark", "-h", OURS, "-c", "1", "-n", "2000", "-t", "get", "--csv"]
        answer = subprocess.run(self.outside + ask, capture_output=True, text=True).stdout.strip().splitlines()
        fields = [field.strip('"') for field in answer[-1].split(",")] if len(answer) > 1 else []
        rate, median = (float(fields[1]), float(fields[4])) if len(fields) > 4 else (0.0, float("inf"))
        return sent["end"]["sum_received"]["bits_per_second"], rate, median

    def end(self):
        # The stack, if there is one, was started first: it takes its files away.
        for stack in self.started[:1]:
            stack.terminate()
            try:
                stack.wait(10)
            except subprocess.TimeoutExpired:
                pass
        for process in reversed(self.started):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        for name in SERVER, CLIENT:
            for pid in run("ip", "netns", "pids", name).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", name], check=False)


def compare(skink, topology, nic, kind, seconds, output):
    scene = Scene(skink, topology, nic)
    try:
        alone = scene.measure(seconds)
        greedy = scene.start(scene.program + ["iperf3", "-c", PEER, "-p", "5201", "-t", "3600", *GREEDY[kind]])
        time.sleep(2)
        beside = scene.measure(seconds)
        if greedy.poll() is not None:
            sys.exit(f"{topology}: the greedy iperf3 ended with {greedy.returncode} before the measurement did")
    finally:
        scene.end()
    shares = [after / before for before, after in zip(alone, beside)]
    line = (f"{topology:8} {nic:6} {kind:10} sending {shares[0]:6.3f} of {alone[0] / 1e9:5.1f} Gbit/s   requests {shares[1]:6.3f} of "
            f"{alone[1]:6.0f}/s   their median {beside[2]:7.3f} ms, was {alone[2]:.3f}")
    print(line, flush=True)
    print(line, file=output, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--skink", default=str(ROOT / "target/release/skink"))
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--greedy", default=",".join(GREEDY))
    parser.add_argument("--nic", default="packet", choices=["packet", "xdp"])
    parser.add_argument("--topologies", default="kernel,single,split")
    parser.add_argument("--output", default=os.devnull)
    arguments = parser.parse_args()
    with open(arguments.output, "a") as output:
        for kind in arguments.greedy.split(","):
            for topology in arguments.topologies.split(","):
                compare(arguments.skink, topology, arguments.nic, kind, arguments.seconds, output)


if __name__ == "__main__":
    main()
