//! Calls that aren't about the network, under `skink run`: they do what they do without; and calls of signal handlers.

use super::{in_each_topology, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use skink_testbed::{Process, Scratch};
use std::path::PathBuf;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    let mut cases = in_each_topology("calls", calls);
    cases.extend(in_each_topology("habits", habits));
    #[cfg(target_arch = "x86_64")]
    cases.extend(in_each_topology("own-calls", own_calls));
    cases.extend(in_each_topology("signals", signals));
    cases.extend(in_each_topology("cancelled", cancelled));
    cases
}

fn compile(scratch: &Scratch, name: &str, source: &str, how: &[&str]) -> Result<PathBuf, Failure> {
    let path = scratch.path().join(name).with_extension("c");
    std::fs::write(&path, source)?;
    let product = scratch.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-pthread"]).args(how);
    compiler.arg("-o").arg(&product).arg(&path);
    Network::finish(compiler, "cc", PATIENCE)?;
    Ok(product)
}

/// A program of one thread, then of two, of which one is cancelled; and a library that is preloaded beside Skink's sees what
/// the program calls.
fn calls(network: &Network) -> Outcome {
    let scratch = Scratch::new("calls")?;
    let program = compile(&scratch, "calls", include_str!("calls.c"), &[])?;
    let library = ["-shared", "-fPIC"];
    let library = compile(&scratch, "seen", include_str!("calls-seen.c"), &library)?;
    let program = program.display().to_string();
    let plain = network.skink_run(&program, [""; 0])?;
    Network::finish(plain, "calls", PATIENCE)?;
    let mut seen = network.skink_run(&program, ["seen"])?;
    seen.env("LD_PRELOAD", library);
    Network::finish(seen, "calls seen", PATIENCE)?;
    Ok(())
}

/// A program that calls the kernel by instructions of its own.
#[cfg(target_arch = "x86_64")]
fn own_calls(network: &Network) -> Outcome {
    const CLIENT: &str = "
import random, socket, sys
for s in [socket.create_connection((sys.argv[1], 9450), 20) for _ in range(2)]:
    # For `MSG_WAITALL`: with a limit of time Python waits itself.
    s.settimeout(None)
    data = random.randbytes(10_000)
    s.sendall(data)
    assert s.recv(len(data), socket.MSG_WAITALL) == data
    s.close()
";
    let scratch = Scratch::new("own-calls")?;
    let program = compile(&scratch, "own-calls", include_str!("own-calls.c"), &[])?;
    let address = Network::SKINK[0];
    let server = network.skink_run(&program.display().to_string(), [address])?;
    let server = Process::spawn(server, "own-calls")?;
    server.wait_until("it listens", || server.log().contains("listening"))?;
    python::finish_on_kernel(network, "the client", CLIENT, &[address])?;
    let (status, said) = server.wait(PATIENCE)?;
    match status.success() && said.ends_with("done\n") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("it ended with {status}:\n{said}"))),
    }
}

/// A library that is loaded so that it looks for functions in libc first: answers what a server says at this port.
const DEEP: &str = r#"
#include <arpa/inet.h>
#include <unistd.h>
int ask(const char *address, int port, char *at, int room) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    int count = connect(s, (struct sockaddr *)&to, sizeof to) ? -1 : send(s, at, room, 0);
    if (count > 0)
        count = recv(s, at, room, MSG_WAITALL);
    close(s);
    return count;
}
"#;

/// What programs do beside sockets. Pages are locked when they are touched (2 is `MCL_FUTURE`), or Skink's memory would be there as a whole; nor
/// is it in core dumps (`dd` in `smaps`). A child that closes all descriptors one by one keeps the connection that it is given.
/// At last the program forbids itself what few need once they serve, as chrony does, and serves.
const HABITS: &str = "
import ctypes, mmap, os, platform, re, select, socket, struct, subprocess, sys
own, peer, topology, library = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mlockall(2) == 0
plenty = mmap.mmap(-1, 256 << 20)
rss = int(re.search(r'VmRSS:\\s+(\\d+)', open('/proc/self/status').read())[1])
assert rss < 200 << 10, f'{rss} KiB'
plenty.close()

deep = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
answer = ctypes.create_string_buffer(b'deeper', 7)
assert deep.ask(peer.encode(), 9400, answer, 6) == 6

dumped, name = [], ''
for line in open('/proc/self/smaps'):
    if re.match('[0-9a-f]+-', line):
        name = line
    if line.startswith('VmFlags') and 'memfd:skink' in name and ' dd' not in line:
        dumped.append(name)
assert not dumped, dumped

if topology != 'library':
    s = socket.create_connection((peer, 9400))
    kept = s.detach()
    if kept != 3:
        os.dup2(kept, 3)
        os.close(kept)
    # (Nothing lies between it and the standard ones, so that Python closes what lies above it by one call for each.)
    subprocess.run(['sh', '-c', 'echo inside >&3'], pass_fds=[3], check=True)
    with socket.socket(fileno=3) as s:
        assert s.recv(7, socket.MSG_WAITALL) == b'inside\\n'

listener = socket.create_server((own, 9410))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, 8, 1)
udp.bind((own, 9411))
select.select([listener, udp], [], [], 0)
if topology != 'library' and platform.machine() == 'x86_64':
    denied = 327, 290, 302, 319, 41, 16
    code = [struct.pack('HBBI', 0x20, 0, 0, 0)]
    code += [struct.pack('HBBI', 0x15, len(denied) - at, 0, number) for at, number in enumerate(denied)]
    code += [struct.pack('HBBI', 6, 0, 0, what) for what in (0x7fff0000, 0x80000000)]
    code = ctypes.create_string_buffer(b''.join(code))
    filter = struct.pack('HxxxxxxQ', len(denied) + 3, ctypes.addressof(code))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0
print('serves', flush=True)
for _ in range(20):
    select.select([listener], [], [], 20)
    c, _ = listener.accept()
    c.sendall(c.recv(64)[::-1])
    c.close()
    select.select([udp], [], [], 20)
    data, ancillary, _, client = udp.recvmsg(64, 64)
    assert ancillary
    udp.sendto(data[::-1], client)
";

const CALLER: &str = "
import socket, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(20)
for _ in range(20):
    with socket.create_connection((sys.argv[1], 9410), 20) as c:
        c.settimeout(20)
        c.sendall(b'abc')
        assert c.recv(64) == b'cba'
    udp.sendto(b'abc', (sys.argv[1], 9411))
    assert udp.recv(64) == b'cba'
";

fn habits(network: &Network) -> Outcome {
    let scratch = Scratch::new("habits")?;
    let library = compile(&scratch, "deep.so", DEEP, &["-shared", "-fPIC"])?;
    let library = library.display().to_string();
    let _echo = python::start_on_kernel(network, "echo", ECHO, &[], "ready")?;
    let topology = network.plan.topology.to_string();
    let arguments = [Network::SKINK[0], Network::KERNEL[0], &topology, &library];
    let program = python::start(network, "program", HABITS, &arguments, "serves")?;
    python::asked(network, program, CALLER, &[Network::SKINK[0]])
}

/// Says each byte again, each `l` after a while.
const ECHO: &str = "
import socket, threading, time
listener = socket.create_server(('10.9.0.1', 9400))
print('ready', flush=True)
def serve(c):
    while data := c.recv(64):
        for at in range(len(data)):
            if data[at] == ord('l'):
                time.sleep(0.3)
            c.sendall(data[at:at+1])
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
";

/// Handlers that make calls while they interrupt others, or leave those for good.
fn signals(network: &Network) -> Outcome {
    until_all(network, "signals", include_str!("signals.c"))
}

fn cancelled(network: &Network) -> Outcome {
    until_all(network, "cancelled", include_str!("cancelled.c"))
}

/// Runs a program beside an echo on the kernel's host, until it has done all.
fn until_all(network: &Network, name: &str, source: &str) -> Outcome {
    let scratch = Scratch::new(name)?;
    let program = compile(&scratch, name, source, &[])?;
    let program = program.display().to_string();
    let _echo = python::start_on_kernel(network, "echo", ECHO, &[], "ready")?;
    let run = network.skink_run(&program, [Network::KERNEL[0], Network::SKINK[0]])?;
    let said = Network::finish(run, name, PATIENCE)?;
    match said.contains("all") {
        true => Ok(()),
        false => Err(Failure::Wrong(said)),
    }
}
