//! Faults in the machine code of components.

use super::{Download, bound_receive_buffers};
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Failure, Outcome};
use serde_json::Value;

/// A component that dies of a fault where it comes by is replaced as one that was killed: a download goes on
/// and comes out whole.
pub fn injected(network: &Network) -> Outcome {
    if !skink_testbed::is_root() {
        return Err(Failure::Skip("faults are root's to inject".to_owned()));
    }
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::Skip("faults are for x86-64".to_owned()));
    }
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    bound_receive_buffers(network)?;
    let download = Download::start(network, &site.path("copy"), &site.path("larger"))?;
    for (component, seed) in [("tcp", "1"), ("ip", "2")] {
        let mut command = network.skink.command(&Network::tool()?.to_string_lossy());
        command.args(["fault", "--component", component, "--class", "stop"]);
        command.args(["--seed", seed, "--json"]);
        let text = Network::finish(command, "skink fault", PATIENCE)?;
        let said: Value = serde_json::from_str(&text)?;
        let last = said["injections"].as_array().and_then(|all| all.last());
        let place = last.and_then(|it| it["place"].as_str()).unwrap_or_default();
        let met = last.is_some_and(|it| it["activated_ms"].is_u64());
        // SIGTRAP, in the function that has the trap.
        let died = said["effect"] == "crash"
            && said["end"]["ending"]["signal"] == 5
            && said["end"]["place"] == place;
        if !met || !died || said["back_ms"].is_null() || !place.contains("skink_") {
            return Err(Failure::Wrong(format!("skink fault said:\n{text}")));
        }
        download.goes_on()?;
    }
    download.finish()?;
    nginx.stop()
}
