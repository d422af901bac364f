//! A campaign's tables: those of NewtOS and NEaT, and what was done to get them.
use super::state::{Campaign, Run};
use crate::failure::Failure;
use crate::fault::strike::Effect;
use serde::Serialize;
use skink_injector::Class;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What became of faults of one class.
#[derive(Serialize, Default, PartialEq, Eq, Debug)]
pub struct OfClass {
    pub injected: usize,
    pub activated: usize,
    /// Runs that crashed, of those whose last activated fault was of the class.
    pub crashes: usize,
    pub hangs: usize,
}

/// All that was counted.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Counts {
    pub runs: usize,
    /// Runs that count: the component crashed or hung.
    pub crashes: usize,
    pub hangs: usize,
    /// Those by component.
    pub by_component: BTreeMap<String, usize>,
    pub transparent: usize,
    pub reachable: usize,
    pub by_hand: usize,
    pub broke_tcp: usize,
    pub transparent_to_udp: usize,
    pub restarted: usize,
    pub corrupt: usize,
    /// Components that had no successor.
    pub not_back: usize,
    pub others_died: usize,
    /// Of runs that don't count: something was lost all the same.
    pub silent_damage: usize,
    pub injected: usize,
    pub activated: usize,
    pub by_class: BTreeMap<Class, OfClass>,
    pub given_up: BTreeMap<String, u64>,
}

/// Counts the runs of a campaign.
pub fn count(campaign: &Campaign) -> Counts {
    let counted: Vec<&Run> = campaign.runs.iter().filter(|run| run.counts()).collect();
    let that = |holds: &dyn Fn(&Run) -> bool| counted.iter().filter(|run| holds(run)).count();
    let mut by_component = BTreeMap::new();
    let mut given_up = BTreeMap::new();
    for run in &counted {
        *by_component
            .entry(run.strike.component.clone())
            .or_default() += 1;
    }
    for (label, more) in campaign.runs.iter().flat_map(|run| &run.given_up) {
        *given_up.entry(label.clone()).or_default() += more;
    }
    let all = campaign.runs.iter();
    Counts {
        runs: campaign.runs.len(),
        crashes: counted.len(),
        hangs: that(&|run| run.strike.effect == Effect::Hang),
        by_component,
        transparent: that(&Run::is_transparent),
        reachable: that(&Run::is_reachable),
        by_hand: that(&|run| run.by_hand.is_some()),
        broke_tcp: that(&|run| !run.lost().is_empty()),
        transparent_to_udp: that(&Run::is_transparent_to_udp),
        restarted: that(&|run| run.restarted),
        corrupt: that(&Run::is_corrupt),
        not_back: that(&|run| run.strike.back_ms.is_none()),
        others_died: that(&|run| !run.others.is_empty()),
        silent_damage: all
            .clone()
            .filter(|run| !run.counts() && !run.is_transparent())
            .count(),
        injected: all.clone().map(|run| run.strike.injections.len()).sum(),
        activated: all.map(|run| run.strike.activated()).sum(),
        by_class: by_class(campaign),
        given_up,
    }
}

fn by_class(campaign: &Campaign) -> BTreeMap<Class, OfClass> {
    let mut classes: BTreeMap<Class, OfClass> = BTreeMap::new();
    for run in &campaign.runs {
        let mut last = None;
        for injection in &run.strike.injections {
            let class = classes.entry(injection.class).or_default();
            class.injected += 1;
            if let Some(at) = injection.activated_ms {
                class.activated += 1;
                last = last.max(Some((at, injection.class)));
            }
        }
        let Some((_, last)) = last else { continue };
        let class = classes.entry(last).or_default();
        match run.strike.effect {
            Effect::Crash => class.crashes += 1,
            Effect::Hang => class.hangs += 1,
            Effect::Survived => {}
        }
    }
    classes
}

#[derive(Serialize)]
struct Report<'a> {
    counts: Counts,
    campaign: &'a Campaign,
}

/// The counts, and every run.
pub fn json(campaign: &Campaign) -> Result<String, Failure> {
    let counts = count(campaign);
    let text = serde_json::to_string_pretty(&Report { counts, campaign });
    let text = text.map_err(|error| Failure::tool(error.to_string()))?;
    Ok(text + "\n")
}

/// The tables.
pub fn markdown(campaign: &Campaign) -> String {
    let counts = count(campaign);
    let settings = &campaign.settings;
    let mut text = format!(
        "# Faults in a stack under load\n\nTopology {}, recovery {}, class {}, seed {}: {} runs, of which {} \
         ended in a crash or a hang of the component ({} were hangs). {} faults were injected, and {} \
         activated.\n",
        settings.topology,
        settings.recovery.as_deref().unwrap_or("as by default"),
        settings.class,
        settings.seed,
        counts.runs,
        counts.crashes,
        counts.hangs,
        counts.injected,
        counts.activated
    );
    newtos(&mut text, &counts);
    neat(&mut text, &counts);
    classes(&mut text, &counts);
    others(&mut text, campaign, &counts);
    text
}

fn newtos(text: &mut String, counts: &Counts) {
    let names: Vec<&str> = counts.by_component.keys().map(String::as_str).collect();
    let numbers: Vec<String> = counts.by_component.values().map(usize::to_string).collect();
    let _ = write!(
        text,
        "\n## Crashes by component (NewtOS, table 2.3)\n\n| total | {} |\n|{}\n| {} | {} |\n",
        names.join(" | "),
        " ---: |".repeat(names.len() + 1),
        counts.crashes,
        numbers.join(" | ")
    );
    let _ = write!(
        text,
        "\n## Consequences (NewtOS, table 2.4)\n\n| | runs |\n| --- | ---: |\n\
         | fully transparent crashes | {} |\n\
         | reachable from outside | {} (+ {} manually fixed) |\n\
         | crash broke TCP connections | {} |\n\
         | transparent to UDP | {} |\n\
         | restart of the whole necessary | {} |\n\
         | bytes were wrong | {} |\n\
         | the component had no successor | {} |\n\
         | other components died too | {} |\n",
        counts.transparent,
        counts.reachable,
        counts.by_hand,
        counts.broke_tcp,
        counts.transparent_to_udp,
        counts.restarted,
        counts.corrupt,
        counts.not_back,
        counts.others_died
    );
}

fn neat(text: &mut String, counts: &Counts) {
    let percent = |part: usize| 100.0 * part as f64 / counts.crashes.max(1) as f64;
    let _ = write!(
        text,
        "\n## Recovery (NEaT, table 3)\n\n| | |\n| --- | ---: |\n\
         | fully transparent recovery | {:.1}% |\n| TCP connections lost | {:.1}% |\n",
        percent(counts.transparent),
        percent(counts.broke_tcp)
    );
}

fn classes(text: &mut String, counts: &Counts) {
    let _ = write!(
        text,
        "\n## Faults by class\n\nA crash or a hang counts for the fault that was activated last.\n\n\
         | class | injected | activated | crashes | hangs |\n| --- | ---: | ---: | ---: | ---: |\n"
    );
    for (class, of) in &counts.by_class {
        let OfClass {
            injected,
            activated,
            crashes,
            hangs,
        } = of;
        let _ = writeln!(
            text,
            "| {class} | {injected} | {activated} | {crashes} | {hangs} |"
        );
    }
}

fn others(text: &mut String, campaign: &Campaign, counts: &Counts) {
    let _ = writeln!(
        text,
        "\n{} runs without a crash or a hang did damage all the same.",
        counts.silent_damage
    );
    if !counts.given_up.is_empty() {
        let _ = write!(
            text,
            "\n## Records that no successor took\n\n| reason | sockets |\n| --- | ---: |\n"
        );
        for (label, count) in &counts.given_up {
            let _ = writeln!(text, "| `{label}` | {count} |");
        }
    }
    let noticed = campaign.runs.iter().filter(|run| !run.is_transparent());
    let noticed: Vec<&Run> = noticed.collect();
    if !noticed.is_empty() {
        text.push_str("\n## Runs that were noticed\n\n");
    }
    for run in noticed {
        let mut injections = run.strike.injections.iter();
        let last = injections.rfind(|it| it.activated_ms.is_some());
        let last = last.map_or(String::new(), |it| {
            format!(" Last: {} in {}.", it.what, it.place)
        });
        let _ = writeln!(text, "- run {}: {}.{last}", run.number, run.in_words());
    }
}

#[cfg(test)]
mod tests;
