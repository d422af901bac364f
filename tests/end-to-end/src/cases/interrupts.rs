//! A NIC's interrupts are put off while programs are busy, and only then; and its segmentation while they send small
//! packets.

use super::cases_in;
use crate::network::Network;
use crate::site::{Nginx, Site};
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use skink_testbed::{Offload, Process};

pub fn cases() -> Vec<Case> {
    let places = [BackEnd::Packet, BackEnd::Xdp].map(|back_end| (Topology::Library, back_end));
    cases_in(&places, "interrupts", only_while_busy)
}

fn only_while_busy(network: &Network) -> Outcome {
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    let skink = &network.skink;
    let interrupts = || skink.interrupts_put_off("wire").unwrap_or(0) == 0;
    let segments = || {
        skink
            .has_offload("wire", Offload::TcpSegmentation)
            .unwrap_or(true)
    };
    let are_put_off = || !interrupts() && !segments();
    let are_as_before = || interrupts() && segments();
    if !are_as_before() {
        return Err(Failure::Wrong("nobody is busy yet".to_owned()));
    }
    let load = || {
        let mut wrk = network.kernel.command("wrk");
        let page = format!("http://{}:80/tiny", Network::SKINK[0]);
        wrk.args(["-t1", "-c64", "-d60s", &page]);
        Process::spawn(wrk, "wrk")
    };
    let wrk = load()?;
    wrk.wait_until("interrupts and segmentation are put off", are_put_off)?;
    wrk.stop()?;
    nginx
        .process
        .wait_until("all is as before when the load ends", are_as_before)?;
    // A program that ends in the middle of it leaves nothing behind.
    let wrk = load()?;
    wrk.wait_until("they are put off again", are_put_off)?;
    let (_, said) = nginx.process.stop()?;
    wrk.stop()?;
    match are_as_before() {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "interrupts or segmentation are still put off; nginx on Skink printed:\n{said}"
        ))),
    }
}
