#!/usr/bin/env python3
"""What it costs to keep connection records: two builds, with and without, side by side.

    sudo bench/records.py [--pairs N] [--only TEXT] [--output FILE] [--against SKINK]

The build without is made with `--cfg skink_unrecorded` in a target directory of its own, target/unrecorded:
`tcp` then leaves out all that it stores in records but what programs read. Nothing can be adopted from it.

--against takes another build for comparison, such as that of an older release, whose libskink.so lies beside it:
target/release/skink is then measured against that one.

For each workload and topology both builds serve at the same time, each on a veth pair of its own, all on
CPU 1. The client on CPU 0 asks one and the other in turns, a second each; which is first changes from pair to
pair. Each pair gives two differences: of the work done per second, as the client counted it, and of the
processor time per unit of work, as the scheduler counted it for the server and all processes of the stack.
Shown are their medians over all pairs, the middle half of the pairs, and an interval that holds the true
median with 95%.

At last callgrind counts instructions for one request (20B, `library`): those of the lines that bring records up
to date (saved.rs of skink-tcp; the stores that they inline are counted elsewhere), and those of the program with all
of its stack. They show what is too small for clocks.

Needs root, two CPUs, nginx, wrk and valgrind; leave the machine alone meanwhile.
"""

import argparse, json, os, re, signal, statistics, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "10.9.0.2"
BUILDS = {"with": ROOT / "target/release/skink", "without": ROOT / "target/unrecorded/release/skink"}
WORKLOADS = {"20B": "nginx", "20B-close": "nginx", "22KB": "nginx", "bulk-send": "peer", "bulk-receive": "peer"}
TOPOLOGIES = ["library", "single"]
# Who serves and asks in bulk: a program like any other, the same on both builds.
PEER = str(BUILDS["with"])


def run(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


def build(names):
    for name in names:
        tool = BUILDS[name]
        environment = dict(os.environ)
        if name == "without":
            environment["RUSTFLAGS"] = "--cfg skink_unrecorded"
        subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "skink", "--package", "skink-app",
                        "--target-dir", tool.parent.parent], cwd=ROOT, env=environment, check=True)


def descendants(pid):
    found = [pid]
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += descendants(int(child))
    except FileNotFoundError:
        pass
    return found


class Side:
    """A server on one of the builds, a host for its client, and the cable between them."""

    def __init__(self, files, build, topology, server):
        self.children, self.roots, self.tool = [], [], str(BUILDS[build])
        try:
            self.lay_cable()
            network = ["--nic", "packet:wire", "--addr", f"{ADDRESS}/24"]
            if topology != "library":
                self.start(self.tool, "up", "--name", f"records-{build}", "--topology", topology, *network)
                time.sleep(1)
                network = ["--name", f"records-{build}"]
            configuration = files / f"{build}.conf"
            configuration.write_text(
                f"daemon off; master_process off; pid {files}/{build}.pid; error_log stderr; "
                "events { worker_connections 4096; } http { access_log off; keepalive_requests 1000000000; "
                f"server {{ listen 80 backlog=4096; root {files}; }} }}")
            nginx = ["nginx", "-c", str(configuration)]
            served = {
                "nginx": nginx,
                "peer": [PEER, "bench", "peer", "serve", "1"],
                "callgrind": ["valgrind", "--tool=callgrind", f"--callgrind-out-file={files}/{build}.%p", *nginx],
            }
            self.start(self.tool, "run", *network, "--", *served[server])
        except BaseException:
            self.end()
            raise

    def lay_cable(self):
        hosts = []
        for _ in range(2):
            holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            self.children.append(holder)
            hosts.append(["nsenter", f"--net=/proc/{holder.pid}/ns/net"])
        time.sleep(0.2)
        server, self.client = hosts
        self.host = server
        run(*server, "ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire",
            "netns", str(self.children[1].pid))
        # Each side receives on its own processor, as in `skink bench`.
        for host, mask in [(server, 2), (self.client, 1)]:
            run(*host, "ip", "link", "set", "wire", "up")
            run(*host, "unshare", "--mount", "sh", "-c", "mount -t sysfs sysfs /sys && "
                f"echo {mask} >/sys/class/net/wire/queues/rx-0/rps_cpus")
        run(*self.client, "ip", "addr", "add", "10.9.0.1/24", "dev", "wire")
        run(*self.client, "sh", "-c", "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range; "
            "echo 1 >/proc/sys/net/ipv4/tcp_tw_reuse")

    def start(self, *words):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL if "valgrind" in words else None}
        child = subprocess.Popen([*self.host, "taskset", "-c", "1", *words], **quiet)
        self.children.append(child)
        self.roots.append(child.pid)

    def wait(self, seconds=60):
        """Until it answers."""
        for _ in range(seconds * 5):
            if subprocess.run([*self.client, "curl", "-s", "-m", "5", "-o", "/dev/null", f"http://{ADDRESS}:80/small"]).returncode == 0:
                return
            time.sleep(0.2)
        raise SystemExit("the server doesn't answer")

    def cost(self):
        """Processor time of the server and the stack, in nanoseconds."""
        total = 0
        for pid in {pid for root in self.roots for pid in descendants(root)}:
            for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                total += int(thread.read_text().split()[0])
        return total

    def ask(self, workload, seconds):
        """Work done each second, and what each unit of it cost in nanoseconds."""
        before = self.cost()
        words = [*self.client, "taskset", "-c", "0"]
        if workload.startswith("bulk"):
            service = workload.removeprefix("bulk-")
            said = run(*words, PEER, "bench", "peer", "ask", service, f"{ADDRESS}:5201", "1", str(seconds))
            said = json.loads(said)
            units, rate = said["units"], said["units"] / said["seconds"]
        else:
            close = ["-H", "Connection: close"] if workload.endswith("close") else []
            file = "large" if workload == "22KB" else "small"
            said = run(*words, "wrk", "-t1", "-c64", f"-d{seconds}s", *close, f"http://{ADDRESS}:80/{file}")
            if "Socket errors" in said or "Non-2xx" in said:
                raise SystemExit(f"{workload}: {said}")
            units = int(re.search(r"(\d+) requests in", said)[1])
            rate = float(re.search(r"Requests/sec: *([\d.]+)", said)[1])
        return rate, (self.cost() - before) / units

    def end(self, patience=5):
        for child in reversed(self.children):
            child.terminate()
            try:
                child.wait(patience)
            except subprocess.TimeoutExpired:
                child.kill()


def spread(values):
    """Median, quartiles, and the interval of the median (by order: no distribution is assumed)."""
    values, count = sorted(values), len(values)
    step = 0.98 * count**0.5
    low, high = max(0, int(count / 2 - step)), min(count - 1, int(count / 2 + step))
    quarters = statistics.quantiles(values, n=4)
    return (f"{statistics.median(values):+6.2f}% ({quarters[0]:+.1f} to {quarters[2]:+.1f})"
            f" [{values[low]:+.1f}, {values[high]:+.1f}]")


def compare(files, workload, topology, pairs):
    sides = {}
    try:
        for name in BUILDS:
            sides[name] = Side(files, name, topology, WORKLOADS[workload])
        time.sleep(1)
        for side in sides.values():
            side.ask(workload, 1)
        slower, dearer = [], []
        for pair in range(pairs):
            order = list(sides) if pair % 2 else list(reversed(sides))
            got = {name: sides[name].ask(workload, 1) for name in order}
            slower.append((1 - got["with"][0] / got["without"][0]) * 100)
            dearer.append((got["with"][1] / got["without"][1] - 1) * 100)
        return slower, dearer
    finally:
        for side in sides.values():
            side.end()


def of_records(path):
    """Instructions in a file of callgrind's: those of the lines that bring records up to date, and all."""
    names, file, called, kept, total = {}, "", False, 0, 0
    for line in path.read_text().splitlines():
        name = re.match(r"(c?)f[lie]=\((\d+)\)(?: (.*))?", line)
        if name:
            known = names.setdefault(name[2], name[3])
            file = file if name[1] else known
        elif line.startswith("calls="):
            called = True
        elif re.match(r"[+*\d-]", line):
            count = 0 if called else int(line.split()[1])
            total += count
            kept += count if file.endswith("protocols/tcp/src/saved.rs") else 0
            called = False
    return kept, total


def instructions(files, name):
    """For each request: in saved.rs, and of the whole program with its stack."""
    side = Side(files, name, "library", "callgrind")
    try:
        side.wait()
        said = run(*side.client, "wrk", "-t1", "-c64", "-d8s", "--timeout", "9s", f"http://{ADDRESS}:80/small")
        requests = int(re.search(r"(\d+) requests in", said)[1])
        os.kill(descendants(side.roots[0])[-1], signal.SIGQUIT)
        side.children[-1].wait(60)
    finally:
        side.end()
    written = [path for path in files.glob(f"{name}.*") if path.suffix not in (".conf", ".pid")]
    counts = [of_records(path) for path in written]
    return [sum(column) / requests for column in zip(*counts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", default="", help="what is measured: names that hold this text")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--against", type=Path, metavar="SKINK")
    options = parser.parse_args()
    if os.environ.get("RECORDS_INSIDE") is None:
        build(["with"] if options.against else BUILDS)
        os.environ["RECORDS_INSIDE"] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                              "--mount-proc", sys.executable, *sys.argv])
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    if options.against:
        BUILDS["without"] = options.against.resolve()
    output = open(options.output, "w") if options.output else None

    def say(line):
        print(line, flush=True)
        if output:
            print(line, file=output, flush=True)

    with tempfile.TemporaryDirectory() as directory:
        files = Path(directory)
        files.chmod(0o755)
        (files / "small").write_text("12345678901234567890")
        (files / "large").write_text("." * 22_000)
        what = "this build costs more than the other" if options.against else "keeping records costs"
        say(f"What {what}: median (middle half of the pairs) [95% interval of the median]")
        say(f"{options.pairs} pairs of one second each. Above 0: it costs that much.\n")
        say(f"{'':24}{'work lost':34}{'processor time added'}")
        for topology in TOPOLOGIES:
            for workload in WORKLOADS:
                name = f"{topology} {workload}"
                if options.only in name:
                    slower, dearer = compare(files, workload, topology, options.pairs)
                    say(f"{name:24}{spread(slower):34}{spread(dearer)}")
        if options.only in "instructions":
            kept, total = instructions(files, "with")
            if options.against:
                _, other = instructions(files, "without")
                say(f"\nInstructions for a request (20B, library): {total:.0f}, and {other:.0f} in the other build")
            else:
                say(f"\nInstructions for a request (20B, library): {kept:.0f} in saved.rs and about as many stores, of {total:.0f}")


main()
