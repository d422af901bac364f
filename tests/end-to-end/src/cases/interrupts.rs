//! A NIC's interrupts are put off while programs are busy, and only then.

use super::cases_in;
use crate::network::Network;
use crate::site::{Nginx, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let places = [BackEnd::Packet, BackEnd::Xdp].map(|back_end| (Topology::Library, back_end));
    cases_in(&places, "interrupts", only_while_busy)
}

fn only_while_busy(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let are_put_off = || {
        network
            .skink
            .interrupts_put_off("wire")
            .is_ok_and(|polls| polls > 0)
    };
    if are_put_off() {
        return Err(Failure::Wrong("nobody is busy yet".to_owned()));
    }
    let load = || {
        let mut wrk = network.kernel.command("wrk");
        let page = format!("http://{}:80/tiny", Network::SKINK[0]);
        wrk.args(["-t1", "-c64", "-d60s", &page]);
        Process::spawn(wrk, "wrk")
    };
    let wrk = load()?;
    wrk.wait_until("interrupts are put off", are_put_off)?;
    wrk.stop()?;
    nginx
        .process
        .wait_until("interrupts come again when the load ends", || {
            !are_put_off()
        })?;
    // A program that ends in the middle of it leaves nothing behind.
    let wrk = load()?;
    wrk.wait_until("interrupts are put off again", are_put_off)?;
    let (_, said) = nginx.process.stop()?;
    wrk.stop()?;
    match are_put_off() {
        false => Ok(()),
        true => Err(Failure::Wrong(format!(
            "interrupts are still put off; nginx on Skink printed:\n{said}"
        ))),
    }
}
