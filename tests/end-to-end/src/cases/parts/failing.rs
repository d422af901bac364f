//! A process of the stack that can't stay up.
use super::Download;
use crate::network::Network;
use crate::site::{Nginx, Site};
use crate::{Failure, Outcome};
use rustix::process::Signal;
use skink_testbed::signal;

/// `filter` is killed as often as it comes: that is said, the rest goes on, and when it is left alone it
/// stays up and that is said too.
pub fn failing(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let up = network.up.as_ref();
    let up = up.ok_or_else(|| Failure::Wrong("there is no skink up".to_owned()))?;
    let state = || network.report("processes", |it| it["name"] == "filter");
    let is_failing = |it: &serde_json::Value| it["state"] == "failing";
    up.wait_until("it is failing", || {
        let Ok(Some(filter)) = state() else {
            return false;
        };
        if let Some(pid) = filter["pid"].as_u64().and_then(|pid| pid.try_into().ok()) {
            let _ = signal(pid, Signal::KILL);
        }
        is_failing(&filter)
            && filter["starts_in_ms"].is_u64()
            && filter["last_end"] == "signal 9 killed it"
    })?;
    let said = || up.log().matches("filter can't stay up").count();
    up.wait_until("it is said", || said() == 1)?;
    up.wait_until("it stays up", || up.log().contains("filter stays up again"))?;
    if said() != 1 || state()?.is_none_or(|it| it["state"] != "running") {
        return Err(Failure::Wrong(up.log()));
    }
    let (copy, original) = (site.path("copy"), site.path("larger"));
    Download::start(network, &copy, &original)?.finish()?;
    nginx.stop()
}
