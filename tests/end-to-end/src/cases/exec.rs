//! A program that executes another, or itself anew: what that inherits, and what it doesn't.

use super::hostile::{count_resets, start_fetches};
use super::servers::children;
use super::{APART, cases_in, python, widely};
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Case, Failure, Outcome};
use rustix::process::Signal;
use skink_testbed::{Process, signal, wait_until_ended};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, run) in [
        ("ports-are-free", ports_are_free as fn(&Network) -> Outcome),
        ("listeners-go-on", listeners_go_on),
        ("listeners-for-a-child", listeners_for_a_child),
    ] {
        cases.extend(widely(&format!("exec/{name}"), run));
    }
    // In `library` connections end with the old workers that hold them.
    cases.extend(cases_in(&APART, "exec/nginx-replaced", nginx_replaced));
    cases
}

/// Answers one client, then the next image does.
const SERVER: &str = "
import os, socket, sys
image = int(sys.argv[1])
listener = socket.create_server(('10.9.0.2', 9100))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('10.9.0.2', 9101))
print(f'image {image}', flush=True)
c, _ = listener.accept()
data, client = udp.recvfrom(64)
c.sendall(b'image %d, ' % image)
udp.sendto(data, client)
if c.recv(64) == b'next':
    os.execv(sys.executable, [sys.executable, '-c', sys.orig_argv[2], str(image + 1)])
";

/// Sends its datagram until it is answered: in `library` the server's socket hears from when on it receives.
const CLIENT: &str = "
import socket, sys
c = socket.create_connection(('10.9.0.2', 9100))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(0.2)
udp.connect(('10.9.0.2', 9101))
for _ in range(100):
    try:
        udp.send(b'echo')
        echo = udp.recv(64)
        break
    except (TimeoutError, ConnectionRefusedError):
        pass
print(c.recv(64).decode() + echo.decode(), end='')
c.sendall(sys.argv[1].encode())
assert c.recv(64) == b''
";

/// The next image listens on the same ports, at once.
fn ports_are_free(network: &Network) -> Outcome {
    let server = python::start(network, "server", SERVER, &["0"], "image 0")?;
    for (image, word) in ["next", "next", "last"].into_iter().enumerate() {
        server.wait_until("the next image listens", || {
            server.log().contains(&format!("image {image}"))
        })?;
        let said = python::finish_on_kernel(network, "client", CLIENT, &[word])?;
        if said != format!("image {image}, echo") {
            let wrong = format!("a client of image {image} was told {said:?}");
            return Err(Failure::Wrong(wrong));
        }
    }
    Ok(())
}

/// Listens, and leaves that to another program by descriptors from 3 on, as systemd does: to the one that it becomes, at
/// once or when somebody calls, or to a child.
const ACTIVATOR: &str = "
import fcntl, os, select, socket, subprocess, sys
listeners = [
    socket.create_server(('10.9.0.2', 9100)),
    socket.create_server(('', 9101)),
    socket.create_server(('::', 9102), family=socket.AF_INET6, dualstack_ipv6=True),
]
fds = [fcntl.fcntl(it, fcntl.F_DUPFD, 20) for it in listeners]
print('listens', flush=True)
if sys.argv[1] == 'waits':
    select.select(listeners, [], [])
for it in listeners:
    it.close()
for number, fd in enumerate(fds, 3):
    os.dup2(fd, number)
    os.close(fd)
server = [sys.executable, '-c', sys.argv[2]]
if sys.argv[1] == 'child':
    sys.exit(subprocess.run(server, pass_fds=[3, 4, 5]).returncode)
os.execv(sys.executable, server)
";

/// Two processes that answer whoever calls at one of three descriptors, until they are told that it was the last.
const ACTIVATED: &str = "
import os, select, socket
listeners = [socket.socket(fileno=number) for number in (3, 4, 5)]
assert [it.getsockname()[1] for it in listeners] == [9100, 9101, 9102]
for it in listeners:
    assert it.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    it.setblocking(False)
other = os.fork()
word = b''
while word != b'last':
    for it in select.select(listeners, [], [])[0]:
        try:
            c, _ = it.accept()
        except BlockingIOError:
            continue
        c.setblocking(True)
        word = c.recv(64)
        c.sendall(word[::-1])
        c.close()
for it in listeners:
    it.close()
if other:
    assert os.waitpid(other, 0)[1] == 0
";

/// Calls at each of the three, over IPv4 and IPv6; the first before there is anybody who answers.
const CALLERS: &str = "
import socket, sys
def ask(word, address, port):
    with socket.create_connection((address, port), 20) as c:
        c.settimeout(20)
        c.sendall(word)
        assert c.recv(64) == word[::-1], (address, port)
for round in range(20):
    ask(b'first', '10.9.0.2', 9100)
    ask(b'second', '10.9.0.2', 9101)
    ask(b'third', '10.9.0.2', 9102)
    ask(b'fourth', 'fd09::2', 9102)
# The second is queued for either, also for the one that is about to close its listening sockets.
ask(b'last', '10.9.0.2', 9100)
ask(b'last', '10.9.0.2', 9100)
";

/// Who calls a program that then becomes another one is answered by that, and so are all who call later. (In `library` the
/// first one hasn't waited for a call: what waits there ends with its stack.)
fn listeners_go_on(network: &Network) -> Outcome {
    let how = if network.up.is_some() {
        "waits"
    } else {
        "at once"
    };
    activate(network, how)
}

/// So they are by another process, to which the first one leaves its listening sockets.
fn listeners_for_a_child(network: &Network) -> Outcome {
    activate(network, "child")
}

fn activate(network: &Network, how: &str) -> Outcome {
    let arguments = [how, ACTIVATED];
    let server = python::start(network, "server", ACTIVATOR, &arguments, "listens")?;
    python::asked(network, server, CALLERS, &[])
}

/// nginx puts another executable in the place of its own: nobody is refused, and what goes on ends in order.
fn nginx_replaced(network: &Network) -> Outcome {
    let site = Site::new()?;
    // In the foreground it doesn't do so.
    let (files, arguments) = Nginx::configure(&site, 2, "", "on")?;
    // It executes itself anew by this path.
    let command = network.skink_run("/usr/sbin/nginx", &arguments)?;
    let run = Process::spawn(command, "nginx in the background")?;
    // `skink run` has become what has gone into the background.
    let stays = network.up.as_ref();
    let stays = stays.ok_or_else(|| Failure::Wrong("there is no skink up".to_owned()))?;
    let master = || {
        let text = std::fs::read_to_string(files.path().join("pid")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    let [address, other_address] = Network::SKINK;
    network.wait_for(stays, address, Nginx::PORT)?;
    // It listens before it goes into the background.
    let has_workers = |master| children(master).is_ok_and(|workers| workers.len() == 2);
    stays.wait_until("it has workers", || master().is_some_and(has_workers))?;
    let old = master().ok_or_else(|| Failure::Wrong(run.log()))?;
    let old_workers = children(old)?;

    let end = site.path("end");
    let load = start_fetches(network, &end)?;
    let (original, copy) = (site.path("larger"), site.path("copy"));
    let script = format!(
        "curl -sS --fail --limit-rate 6M -o {copy} http://{address}:{port}/larger && cmp {copy} {original}",
        port = Nginx::PORT,
        copy = copy.display(),
        original = original.display()
    );
    let mut shell = network.kernel.command("bash");
    shell.args(["-c", &script]);
    let download = Process::spawn(shell, "a download")?;
    download.wait_until("it has begun", || {
        copy.metadata().is_ok_and(|it| it.len() > 0)
    })?;

    signal(old, Signal::USR2)?;
    let mut new = old;
    stays.wait_until("another master has workers", || {
        new = master().unwrap_or(old);
        new != old && has_workers(new)
    })?;
    signal(old, Signal::WINCH)?;
    stays.wait_until("an old worker has ended", || {
        children(old).is_ok_and(|now| !old_workers.iter().all(|it| now.contains(it)))
    })?;
    signal(old, Signal::QUIT)?;
    let (status, said) = download.wait(PATIENCE)?;
    if !status.success() {
        return Err(Failure::Wrong(format!("the download: {status}: {said}")));
    }
    wait_until_ended(&[old], PATIENCE)?;
    std::fs::write(end, "")?;
    let reset = count_resets(load)?;
    if reset > 0 {
        let text = format!("{reset} connections were reset: {}", run.log());
        return Err(Failure::Wrong(text));
    }
    for address in [address, other_address] {
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &site.fetch_and_compare(address, Nginx::PORT, "large")]);
        Network::finish(shell, "fetching from the new nginx", PATIENCE)?;
    }
    signal(new, Signal::QUIT)?;
    wait_until_ended(&[new], PATIENCE)?;
    let (status, said) = run.wait(PATIENCE)?;
    match status.success() && !said.contains("panicked") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("nginx: {status}:\n{said}"))),
    }
}
