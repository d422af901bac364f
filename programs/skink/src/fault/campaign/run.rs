//! One run: faults in one component, and what of the load was left.
use super::CampaignOptions;
use super::lab::{self, Lab};
use super::load::{self, Fate, Loads};
use super::state::Run;
use crate::failure::Failure;
use crate::fault::MOST;
use crate::fault::strike::{self, Effect, Strike};
use crate::stat;
use crate::tools::Found;
use rustix::process::Signal;
use skink_injector::{Plan, Random};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a load may take to go on after a crash.
const SETTLE: Duration = Duration::from_secs(12);
/// How long a service may take to be reached anew.
const REACH: Duration = Duration::from_secs(10);

/// Puts faults into `component`, and looks what they do.
pub fn run(
    lab: &Lab,
    loads: &Loads,
    component: &str,
    number: usize,
    options: &CampaignOptions,
) -> Result<Run, Failure> {
    let mut stack = lab.stack()?;
    strike::refresh(&mut stack)?;
    let before = (restarts(&stack), given_up(&stack));
    let seed = Random::new(options.seed.wrapping_add(number as u64)).draw();
    let plan = Plan {
        class: options.class,
        seed,
        most: MOST,
        patience: Duration::from_secs(options.patience),
    };
    let strike = Strike::new(&mut stack, component, &plan, &mut |_| {})?;
    let fates = loads.look(SETTLE);
    let unreachable = load::unreachable(lab, REACH).map_err(lab::failed)?;
    let mut run = Run {
        number,
        fates,
        unreachable,
        by_hand: None,
        restarted: false,
        others: Vec::new(),
        ended: lab.ended(),
        given_up: BTreeMap::new(),
        strike,
    };
    note(&mut run, &mut stack, &before);
    Ok(run)
}

/// What the supervisor and the counters say of it.
fn note(run: &mut Run, stack: &mut Found, before: &(BTreeMap<String, u64>, BTreeMap<String, u64>)) {
    if strike::refresh(stack).is_err() {
        return;
    }
    for (name, count) in restarts(stack) {
        let died = count.saturating_sub(before.0.get(&name).copied().unwrap_or(0));
        let own = u64::from(name == run.strike.component && run.strike.end.is_some());
        if died > own {
            run.others.push(name);
        }
    }
    for (label, count) in given_up(stack) {
        let more = count.saturating_sub(before.1.get(&label).copied().unwrap_or(0));
        if more > 0 {
            run.given_up.insert(label, more);
        }
    }
}

/// Replaces what must be, so that the next run finds all in order.
pub fn clean_up(lab: &mut Lab, loads: &mut Loads, run: &mut Run) -> Result<(), Failure> {
    // It still has its faults.
    if run.strike.effect == Effect::Survived && run.strike.activated() > 0 {
        kill(lab, &run.strike.component);
    }
    if !run.unreachable.is_empty() && !repair(lab, run)? {
        run.restarted = true;
    }
    if run.restarted || !run.ended.is_empty() {
        loads.stop();
        lab.restart().map_err(lab::failed)?;
    }
    for last in [false, true] {
        loads.bury(&run.fates);
        loads.renew(lab).map_err(lab::failed)?;
        let fates = loads.look(SETTLE);
        if fates.values().all(|fate| *fate == Fate::Alive) {
            return Ok(());
        }
        if last {
            return Err(Failure::tool(format!(
                "the load doesn't run even on a stack that was started anew: {fates:?}"
            )));
        }
        // New connections that don't go on are as bad as none that can be made.
        run.restarted = true;
        loads.stop();
        lab.restart().map_err(lab::failed)?;
    }
    Ok(())
}

/// Kills one component after the other by hand, the faulty one first, until all is reached. False if that
/// doesn't help.
fn repair(lab: &Lab, run: &mut Run) -> Result<bool, Failure> {
    let Ok(stack) = lab.stack() else {
        return Ok(false);
    };
    let own = run.strike.component.clone();
    let others = stack.info.components.iter().map(|it| it.name.clone());
    let others = others.filter(|name| *name != own);
    for name in std::iter::once(own.clone()).chain(others) {
        kill(lab, &name);
        if load::unreachable(lab, REACH)
            .map_err(lab::failed)?
            .is_empty()
        {
            run.by_hand = Some(name);
            return Ok(true);
        }
    }
    Ok(false)
}

/// Kills a process of the stack and waits until there is another one. Whether it helped shows in what can
/// be reached.
fn kill(lab: &Lab, name: &str) {
    let Ok(mut stack) = lab.stack() else { return };
    let before = strike::process(&stack, name).map(|it| (it.pid, it.restarts));
    let Ok((Some(pid), count)) = before else {
        return;
    };
    if skink_testbed::signal(pid, Signal::KILL).is_err() {
        return;
    }
    for _ in 0..1_000 {
        let asked = strike::refresh(&mut stack);
        let now = asked.and_then(|()| strike::process(&stack, name));
        if now.is_ok_and(|it| it.restarts > count && it.state == "running") {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn restarts(stack: &Found) -> BTreeMap<String, u64> {
    let all = stack.info.components.iter();
    all.map(|it| (it.name.clone(), it.restarts)).collect()
}

/// Records that a successor didn't take, by reason.
fn given_up(stack: &Found) -> BTreeMap<String, u64> {
    let mut counters = stat::sums(stack);
    counters.retain(|label, _| label.contains(".record."));
    counters
}
