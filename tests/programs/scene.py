"""Two network namespaces and the cable between them: a program on Skink, or on the kernel's stack, at one end, and its
clients on the kernel's stack at the other."""

import os, shutil, signal, subprocess, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKINK = os.environ.get("SKINK", str(ROOT / "target/release/skink"))
OURS, PEER = "10.77.0.2", "10.77.0.1"


class Failed(Exception):
    """A program didn't do what it is for."""


class Scene:
    """What is there for one case; `end` removes all of it."""

    def __init__(self, topology, nic):
        mark = f"programs-{os.getpid()}"
        self.topology, self.name, self.started = topology, mark, []
        self.server_side, self.client_side = f"{mark}-s", f"{mark}-c"
        self.dir = tempfile.mkdtemp(prefix="programs-")
        os.chmod(self.dir, 0o755)
        self.at_server = ["ip", "netns", "exec", self.server_side]
        self.at_client = ["ip", "netns", "exec", self.client_side]
        for side in self.server_side, self.client_side:
            self.sh(f"ip netns add {side}; ip -n {side} link set lo up")
        self.sh(f"ip -n {self.server_side} link add wire type veth peer name wire netns {self.client_side}")
        for side in self.server_side, self.client_side:
            self.sh(f"ip -n {side} link set wire up")
        self.sh(f"ip -n {self.client_side} addr add {PEER}/24 dev wire")
        stack = ["--nic", f"{nic}:wire", "--addr", f"{OURS}/24", "--no-probe"]
        if topology == "kernel":
            self.sh(f"ip -n {self.server_side} addr add {OURS}/24 dev wire")
            self.prefix = self.at_server
        elif topology == "library":
            self.prefix = self.at_server + [SKINK, "run", *stack, "--"]
        else:
            self.spawn(self.at_server + [SKINK, "up", "--topology", topology, *stack, "--name", mark], "up.log")
            self.until(lambda: ": ready (" in Path(self.dir, "up.log").read_text(), "skink up is ready")
            self.prefix = self.at_server + [SKINK, "run", "--name", mark, "--"]

    def sh(self, command):
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{command}: {done.stderr}")
        return done.stdout

    def until(self, holds, what):
        for _ in range(100):
            if holds():
                return
            time.sleep(0.1)
        raise Failed(f"waited until {what}")

    def spawn(self, command, log, **options):
        with open(Path(self.dir, log), "w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True, **options)
        self.started.append(process)

    def server(self, command, user=None, cwd=None, env=None, outside=False):
        """Starts a server: on Skink, or at the other end."""
        if isinstance(command, str):
            command = ["sh", "-c", command]
        prefix = self.at_client if outside else self.prefix
        if user and self.topology == "library":
            prefix = prefix[:-1] + ["--user", user, "--"]
        elif user:
            prefix = self.at_server + ["runuser", "-u", user, "--"] + prefix[len(self.at_server) :]
        log = f"server{len(self.started)}.log"
        self.spawn(prefix + command, log, cwd=cwd, env={**os.environ, **(env or {})})

    def client(self, command, timeout=40, inside=False, ok=True):
        """Runs a client to its end, and answers what it printed; on Skink, if it is `inside`."""
        if isinstance(command, str):
            command = ["bash", "-c", command]
        prefix = self.prefix if inside else self.at_client
        options = {"capture_output": True, "text": True, "errors": "replace"}
        try:
            done = subprocess.run(prefix + command, timeout=timeout, **options)
        except subprocess.TimeoutExpired as expired:
            raise Failed(f"{command} hasn't ended: {(expired.stdout or b'')[-400:]}") from expired
        if ok and done.returncode:
            raise Failed(f"{command}: {done.returncode}, {done.stdout[-500:]} {done.stderr[-800:]}")
        return done.stdout + done.stderr

    def wait(self, port, host=OURS):
        """Waits until somebody listens."""
        look = self.at_client + ["timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}"]
        self.until(lambda: subprocess.run(look, capture_output=True).returncode == 0, f"port {port} is open")

    def check(self, holds, what):
        if not holds:
            raise Failed(f"not so: {what}")

    def logs(self):
        texts = [f"--{log.name}--\n{log.read_text(errors='replace')[-1500:]}" for log in sorted(Path(self.dir).glob("*.log"))]
        return "\n".join(texts)

    def end(self):
        for side in self.server_side, self.client_side:
            for _ in range(20):
                pids = subprocess.run(["ip", "netns", "pids", side], capture_output=True, text=True).stdout.split()
                for pid in pids:
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                if not pids:
                    break
                time.sleep(0.1)
        for process in self.started:
            process.wait()
        for side in self.server_side, self.client_side:
            subprocess.run(["ip", "netns", "del", side])
        shutil.rmtree(self.dir, ignore_errors=True)
