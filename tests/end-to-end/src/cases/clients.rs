//! Clients on Skink, servers on the kernel.

use super::on_each_back_end;
use super::servers::no_wrk_errors;
use crate::network::Network;
use crate::network::bracketed;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Case, Failure, Outcome};

pub fn cases() -> Vec<Case> {
    let mut cases = on_each_back_end("curl/files", curl_files);
    cases.extend(on_each_back_end("curl/refused", curl_refused));
    cases.extend(on_each_back_end("wrk/load", wrk_load));
    cases
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
