//! libc's streams (`fdopen`, `dprintf`, a connection in standard output's place) on sockets.

use super::{everywhere, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome, Topology};
use skink_testbed::{Process, Scratch};
use std::path::PathBuf;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    everywhere("streams", streams)
}

/// Says each line again, and each body, but for what is left on the way out. Prints what came last on
/// each connection.
const SERVER: &str = "
import socket, sys
listener = socket.create_server(('', 9300), family=socket.AF_INET6, dualstack_ipv6=True)
print('ready', flush=True)
while True:
    c, _ = listener.accept()
    with c, c.makefile('rb') as lines:
        last = b''
        for last in lines:
            if last.startswith(b'bytes '):
                c.sendall(lines.read(int(last[6:])))
            elif not last.startswith(b'left'):
                c.sendall(last)
    print('came last:', last, flush=True)
";

/// Asks such a server.
const CLIENT: &str = "
import socket, sys
with socket.create_connection((sys.argv[1], 9301), 20) as s:
    lines = s.makefile('rb')
    for line in [b'one\\n', b'x' * 100000 + b'\\n', b'last\\n']:
        s.sendall(line)
        assert lines.readline() == line
    s.shutdown(socket.SHUT_WR)
    assert lines.read() == b'goodbye'
";

/// The program, made by the system's compiler as Debian's are (`fortified`) or plainly.
fn compile(scratch: &Scratch, fortified: bool) -> Result<PathBuf, Failure> {
    let source = scratch.path().join("streams.c");
    std::fs::write(&source, include_str!("streams.c"))?;
    let program = scratch.path().join(format!("streams-{fortified}"));
    let level = if fortified { "2" } else { "0" };
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-w", "-U_FORTIFY_SOURCE"]);
    compiler.arg(format!("-D_FORTIFY_SOURCE={level}"));
    compiler.arg("-o").arg(&program).arg(&source);
    Network::finish(compiler, "cc", PATIENCE)?;
    Ok(program)
}

/// What a stream takes reaches the peer whole, also what is left in it at the end; descriptors are closed
/// once, and ordinary files stay what they were.
fn streams(network: &Network) -> Outcome {
    let scratch = Scratch::new("streams")?;
    let mut server = network.kernel.command("python3");
    server.args(["-c", SERVER]);
    let server = Process::spawn(server, "a server")?;
    server.wait_until("it is ready", || server.log().contains("ready"))?;
    let directory = scratch.path().display().to_string();
    for (fortified, address) in [true, false].into_iter().zip(Network::KERNEL) {
        let program = compile(&scratch, fortified)?.display().to_string();
        let ask = network.skink_run(&program, ["ask", address, "9300", &directory])?;
        let said = Network::finish(ask, "streams ask", PATIENCE)?;
        if !said.ends_with("before\nafter\n") {
            return Err(Failure::Wrong(format!("streams ask printed {said:?}")));
        }
        let serve = network.skink_run(&program, ["serve", "9301"])?;
        let serve = Process::spawn(serve, "streams serve")?;
        serve.wait_until("it is ready", || serve.log().contains("ready"))?;
        let own = Network::SKINK[usize::from(fortified)];
        python::finish_on_kernel(network, "a client of streams", CLIENT, &[own])?;
        let (status, said) = serve.wait(PATIENCE)?;
        if !status.success() {
            return Err(Failure::Wrong(format!("streams serve: {status}: {said}")));
        }
    }
    // Connections that `exec` hands on need a stack outside the program.
    let (echo, read) = match network.plan.topology {
        Topology::Library => ("echo", "read -r line <&3"),
        Topology::Single | Topology::Split => ("/bin/echo", "line=$(sed q <&3)"),
    };
    let script = format!(
        "exec 3<>/dev/tcp/{}/9300; {echo} of a shell >&3; {read}; test \"$line\" = 'of a shell'",
        Network::KERNEL[0]
    );
    let shell = network.skink_run("bash", ["-c", &script])?;
    Network::finish(shell, "bash", PATIENCE)?;
    let came_last = [
        "by the other\\n",
        "left for freopen\\n",
        "to the peer\\n",
        "left over",
    ];
    let rounds = came_last.repeat(2);
    let expected = rounds.iter().chain(&["of a shell\\n"]);
    let expected: Vec<String> = expected
        .map(|text| format!("came last: b'{text}'"))
        .collect();
    server.wait_until("all connections have ended", || {
        server.log().lines().count() > expected.len()
    })?;
    let log = server.log();
    if !log.lines().skip(1).eq(expected.iter().map(String::as_str)) {
        return Err(Failure::Wrong(format!("the server heard\n{log}")));
    }
    Ok(())
}
