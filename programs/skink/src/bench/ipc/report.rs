//! The results for a person to read, and for a program.

use super::{Results, Round};
use crate::bench::statistics::Spread;
use crate::failure::Failure;
use crate::tools::table;
use serde::Serialize;
use std::fmt::Write;

/// What is divided by what, within each round.
const RATIOS: [(&str, &str, &str); 8] = [
    (
        "round-trip-queues",
        "round-trip-one-way-lines",
        "a message there and back, by bare one-way cache lines",
    ),
    (
        "round-trip-queues",
        "round-trip-cache-line",
        "the same, by one bare cache line that both sides write",
    ),
    (
        "round-trip-queues-24-bytes",
        "round-trip-cache-line",
        "a message of 24 bytes there and back, by the latter",
    ),
    (
        "round-trips-queues-16",
        "round-trip-cache-line",
        "one of 16 that are under way at once, by the latter",
    ),
    (
        "round-trip-lanes",
        "round-trip-cache-line",
        "a call of a component and its outcome, by the latter",
    ),
    (
        "wake-up-doorbell",
        "wake-up-eventfd",
        "there and back between sleepers, by eventfds",
    ),
    (
        "wake-up-doorbell",
        "wake-up-pipe",
        "there and back between sleepers, by pipes",
    ),
    (
        "wake-up-spinning",
        "wake-up-eventfd",
        "the same with spinning first, by eventfds",
    ),
];

#[derive(Serialize)]
struct Ratio {
    name: &'static str,
    divided_by: &'static str,
    meaning: &'static str,
    /// Of the ratios of medians within each round.
    ratio: Spread,
}

#[derive(Serialize)]
struct Whole<'a> {
    ratios: Vec<Ratio>,
    #[serde(flatten)]
    results: &'a Results,
}

fn ratios(rounds: &[&Round]) -> Vec<Ratio> {
    let ratio = |(name, divided_by, meaning)| {
        let within = rounds
            .iter()
            .filter_map(|round| Some(round.of(name)?.p50 / round.of(divided_by)?.p50));
        Some(Ratio {
            name,
            divided_by,
            meaning,
            ratio: Spread::of(within)?,
        })
    };
    RATIOS.into_iter().filter_map(ratio).collect()
}

/// One JSON object: the ratios, then every raw figure.
pub fn json(results: &Results) -> Result<String, Failure> {
    let whole = Whole {
        ratios: ratios(&results.counting().0),
        results,
    };
    let text = serde_json::to_string_pretty(&whole);
    text.map(|text| text + "\n")
        .map_err(|error| Failure::tool(error.to_string()))
}

/// Ratios first, then the figures, then what they are worth.
pub fn text(results: &Results) -> String {
    let (rounds, disturbed) = results.counting();
    let mut text = String::new();
    if results.build == "debug" {
        text.push_str("A DEBUG BUILD: these figures mean nothing.\n\n");
    }
    text.push_str(
        "Time by channels, divided by time by other means (below 1: channels are faster).\n",
    );
    text.push_str("Median of the ratios within each round (lowest–highest).\n\n");
    let mut rows = Vec::new();
    for ratio in ratios(&rounds) {
        rows.push(vec![ratio.meaning.to_owned(), extremes(&ratio.ratio, 2)]);
    }
    text.push_str(&table(&rows, &[]));
    text.push('\n');
    text.push_str(&figures(&rounds, results.ticks_per_ns));
    text.push('\n');
    text.push_str(&worth(results, &rounds, disturbed));
    text
}

fn extremes(spread: &Spread, digits: usize) -> String {
    format!(
        "{:.digits$} ({:.digits$}–{:.digits$})",
        spread.median, spread.lowest, spread.highest
    )
}

fn figures(rounds: &[&Round], ticks_per_ns: f64) -> String {
    let cycles = Spread::of(rounds.iter().map(|round| round.cycles_per_tick));
    let cycles_per_tick = cycles.map_or(0.0, |cycles| cycles.median);
    let head = [
        "exchange",
        "minimum",
        "p50",
        "p99",
        "p50 in ns",
        "in cycles",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for exchange in super::Exchange::ALL {
        let name = exchange.name();
        let spread = |figure: &dyn Fn(&super::Sample) -> f64| {
            Spread::of(rounds.iter().filter_map(|round| round.of(name)).map(figure))
        };
        let (minimum, p50) = (spread(&|one| one.minimum), spread(&|one| one.p50));
        let (Some(minimum), Some(p50), Some(p99)) = (minimum, p50, spread(&|one| one.p99)) else {
            continue;
        };
        let digits = usize::from(p50.median < 100.0);
        rows.push(vec![
            name.to_owned(),
            format!("{:.digits$}", minimum.lowest),
            extremes(&p50, digits),
            extremes(&p99, digits),
            format!("{:.1}", p50.median / ticks_per_ns),
            format!("{:.0}", p50.median * cycles_per_tick),
        ]);
    }
    format!(
        "Ticks of the time-stamp counter ({ticks_per_ns:.2} in a nanosecond) for each message enqueued, or for\n\
         each round trip. Medians over rounds (lowest–highest). Messages are of 56 bytes\n\
         where nothing else is said. Cycles are the core's, {cycles_per_tick:.2} in a tick: so many of a chain of\n\
         additions, each of which takes one, are done in a tick.\n\n{}",
        table(&rows, &[1, 4, 5])
    )
}

fn worth(results: &Results, rounds: &[&Round], disturbed: bool) -> String {
    let mut text = "What the figures are worth\n".to_owned();
    let discarded = results.rounds.len() - rounds.len();
    let _ = writeln!(
        text,
        "  {discarded} of {} rounds discarded",
        results.rounds.len()
    );
    if disturbed {
        text.push_str(
            "  ALL ROUNDS WERE DISTURBED and are shown for want of others: DON'T QUOTE THEM\n",
        );
    }
    if let Some(why) = results.rounds.iter().find_map(|one| one.discarded.as_ref()) {
        let _ = writeln!(text, "    for instance: {why}");
    }
    if let Some(stolen) = Spread::of(rounds.iter().map(|round| round.stolen * 100.0)) {
        let _ = writeln!(
            text,
            "  The hypervisor took {}% of a processor: that is in wake-ups and in p99;\n  \
             what doesn't sleep is measured in blocks of microseconds, few of which meet it",
            extremes(&stolen, 0)
        );
    }
    let _ = write!(
        text,
        "  One side on CPU {}, the other on CPU {}. In a virtual machine a wake-up includes what the\n  \
         hypervisor takes to wake a processor, by whatever means it was asked.\n\n\
         Machine\n  {}; Linux {}; skink {} ({})\n",
        super::CPUS[0],
        super::CPUS[1],
        results.processor,
        results.kernel,
        env!("CARGO_PKG_VERSION"),
        results.build
    );
    text
}
