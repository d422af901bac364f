//! Clients on Skink, servers on the kernel.

use super::servers::no_wrk_errors;
use super::{IN_PROGRAMS, cases_in, on_each_back_end};
use crate::network::Network;
use crate::network::bracketed;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Case, Failure, Outcome};

pub fn cases() -> Vec<Case> {
    let mut cases = on_each_back_end("curl/files", curl_files);
    cases.extend(on_each_back_end("curl/refused", curl_refused));
    cases.extend(on_each_back_end("wrk/load", wrk_load));
    cases.extend(cases_in(&IN_PROGRAMS, "python/helper", helper_apart));
    cases
}

/// Has a stack, a pipe, and an epoll set, made in this order; looks until the one other thread has none of the
/// program's descriptors.
const HELPED: &str = "
import os, select, socket
listener = socket.create_server(('', 9400))
listener.setblocking(False)
try: listener.accept()
except BlockingIOError: pass
ends = os.pipe()
epoll = select.epoll()
epoll.register(listener)
epoll.poll(0)
own = {0, 1, 2, *ends, listener.fileno(), epoll.fileno()}
while True:
    threads = [t for t in os.listdir('/proc/self/task') if t != str(os.getpid())]
    try: shared = [own & {int(fd) for fd in os.listdir(f'/proc/self/task/{t}/fd')} for t in threads]
    except OSError: continue
    if shared == [set()]: break
    os.sched_yield()
print('apart')
";

/// The library's thread shares no descriptor table with the program: else each call on a descriptor would cost
/// a program of one thread what it costs one of several.
fn helper_apart(network: &Network) -> Outcome {
    let program = network.skink_run("python3", ["-c", HELPED])?;
    Network::finish(program, "python3 with a helper", PATIENCE)?;
    Ok(())
}

fn curl_files(network: &Network) -> Outcome {
    let site = Site::new()?;
    let _nginx = Nginx::on_kernel(network, &site)?;
    for address in Network::KERNEL {
        for (name, _) in Site::FILES {
            let to = site.path("fetched");
            let url = format!("http://{}:{}/{name}", bracketed(address), Nginx::PORT);
            let to = to.to_string_lossy();
            let arguments = ["-sS", "--fail", "--max-time", "100", "-o", &to, &url];
            let command = network.skink_run("curl", arguments)?;
            Network::finish(command, &format!("curl of {url} on Skink"), PATIENCE)?;
            let (fetched, original) = (std::fs::read(&*to)?, std::fs::read(site.path(name))?);
            if fetched != original {
                return Err(Failure::Wrong(format!("{url} arrived changed")));
            }
        }
    }
    Ok(())
}

/// A port where nobody listens is refused at once, with the errno of the kernel's own stack.
fn curl_refused(network: &Network) -> Outcome {
    for address in Network::KERNEL {
        let url = format!("http://{}:9/", bracketed(address));
        let command = network.skink_run("curl", ["-sS", "--max-time", "10", &url])?;
        let process = skink_testbed::Process::spawn(command, "curl")?;
        let (status, said) = process.wait(PATIENCE)?;
        if status.code() != Some(7) || !said.contains("refused") && !said.contains("connect") {
            return Err(Failure::Wrong(format!("curl ended with {status}: {said}")));
        }
    }
    Ok(())
}

fn wrk_load(network: &Network) -> Outcome {
    let site = Site::new()?;
    let _nginx = Nginx::on_kernel(network, &site)?;
    for (address, file) in [(Network::KERNEL[0], "page"), (Network::KERNEL[1], "tiny")] {
        let url = format!("http://{}:80/{file}", bracketed(address));
        let command = network.skink_run("wrk", ["-t2", "-c32", "-d3s", &url])?;
        let said = Network::finish(command, "wrk on Skink", PATIENCE)?;
        no_wrk_errors(&said)?;
    }
    Ok(())
}
