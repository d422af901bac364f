//! The floor of a workload: the program's own time, and that of the back end without a stack for as many frames.

use super::costs::PROGRAM;
use super::goals;
use super::plan::{LARGE_PAIRS, SMALL_PAIRS};
use super::results::{Measurement, Results, Round, Traffic, Unit, WorkloadResults};
use super::statistics::{self, Metric, Ratio, Spread, counting, spread};
use super::task::Task;
use super::variant::{BackEnd, RAW, Variant};
use serde::Serialize;

/// Up to so many bytes on the mean, a frame costs what a small one does.
const SMALL_BYTES: f64 = 512.0;
/// What a frame has besides its IP packet. (A veth counts it where there is no NAPI, and doesn't where there is.)
const ETHERNET_HEADER_BYTES: f64 = 14.0;

/// What a variant of Skink costs beside its floor. Times are microseconds of the server's processor for a unit of
/// work, medians over rounds.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Floor {
    pub workload: String,
    pub unit: Unit,
    pub variant: String,
    /// The kernel's variant on a cable of the same kind.
    pub kernel: String,
    /// The same back end without a stack.
    pub raw: String,
    pub kernel_us_per_unit: f64,
    pub skink_us_per_unit: f64,
    /// `None` if it can't be told: larger segments than frames passed the cable or the back end, or pairs weren't measured.
    pub floor_us_per_unit: Option<f64>,
    /// Of it, the program's own: its user time on the kernel.
    pub program_us_per_unit: f64,
    pub received: Frames,
    pub sent: Frames,
    /// Work per server CPU second, Skink ÷ kernel: the median of ratios within rounds.
    pub ratio: f64,
    pub goal: Option<f64>,
    pub reached: Option<bool>,
    /// There was no undisturbed round of the workload or of the pairs.
    pub disturbed: bool,
}

/// What passed the cable one way.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub struct Frames {
    pub per_unit: f64,
    /// On the mean; 0 if there were none.
    pub bytes: f64,
}

impl Frames {
    /// Time of the back end for one way: half of that for as many pairs.
    fn cost(&self, pairs: &Pairs, mtu: u32) -> Option<f64> {
        let each = match self.bytes {
            bytes if bytes <= SMALL_BYTES => pairs.small,
            bytes if bytes <= f64::from(mtu) + ETHERNET_HEADER_BYTES => pairs.large,
            _ => None,
        };
        each.map(|each| self.per_unit * each / 2.0)
    }
}

/// What a frame there and one back cost a back end without a stack.
struct Pairs {
    small: Option<f64>,
    /// `None` too where the kernel joins large frames of TCP before the back end has them, and cuts what it sends: then they
    /// cost less than pairs, which aren't joined.
    large: Option<f64>,
    disturbed: bool,
}

impl Pairs {
    /// `None` if it was never measured.
    fn of(results: &Results, raw: &str) -> Option<Pairs> {
        let measured = |task: Task| {
            let name = task.to_string();
            let workload = results.workloads.iter().find(|one| one.name == name)?;
            let (rounds, disturbed) = counting(workload);
            let cost = spread(&rounds, raw, |one| one.server_cpu_us_per_unit)?;
            Some((cost.median, disturbed))
        };
        let (small, large) = (measured(SMALL_PAIRS), measured(LARGE_PAIRS));
        let disturbed = small.or(large)?.1 || large.is_some_and(|(_, disturbed)| disturbed);
        Some(Pairs {
            small: small.map(|(cost, _)| cost),
            large: large.filter(|_| by_frames(raw)).map(|(cost, _)| cost),
            disturbed,
        })
    }
}

/// Whether this back end carries frames alone, whatever their size.
fn by_frames(raw: &str) -> bool {
    let all = Variant::raw(&BackEnd::ALL, true);
    let mut frames_only = all.iter().filter(|one| one.sends_frames_only());
    frames_only.any(|one| one.to_string() == raw)
}

/// Each variant of Skink that was measured beside the kernel, if its back end was measured without a stack. (Pairs have
/// none: they are held against the back end itself.)
pub fn floors(results: &Results) -> Vec<Floor> {
    let workloads = results.workloads.iter();
    let workloads = workloads.filter(|one| one.unit != Unit::Pair);
    let of = |workload| {
        let ratios = statistics::ratios(workload, &results.comparisons).into_iter();
        ratios.filter_map(|ratio| floor(results, workload, &ratio))
    };
    workloads.flat_map(of).collect()
}

fn floor(results: &Results, workload: &WorkloadResults, ratio: &Ratio) -> Option<Floor> {
    let (variant, kernel) = (&ratio.comparison.variant, &ratio.comparison.base);
    if ratio.metric != Metric::WorkPerCpu || !ratio.comparison.like_for_like {
        return None;
    }
    let mut comparisons = results.comparisons.iter();
    let bare = comparisons.find(|one| one.variant == *variant && one.against == RAW)?;
    let pairs = Pairs::of(results, &bare.base)?;
    let (rounds, _) = counting(workload);
    let cost = |variant| spread(&rounds, variant, |one| one.server_cpu_us_per_unit);
    let received = frames(&rounds, variant, |one| (one.frames_in, one.bytes_in))?;
    let sent = frames(&rounds, variant, |one| (one.frames_out, one.bytes_out))?;
    let program = spread(&rounds, kernel, user_us_per_unit)?.median;
    let mtu = results.settings.mtu;
    let back_end = received.cost(&pairs, mtu).zip(sent.cost(&pairs, mtu));
    Some(Floor {
        workload: workload.name.clone(),
        unit: workload.unit,
        variant: variant.clone(),
        kernel: kernel.clone(),
        raw: bare.base.clone(),
        kernel_us_per_unit: cost(kernel)?.median,
        skink_us_per_unit: cost(variant)?.median,
        floor_us_per_unit: back_end.map(|(received, sent)| program + received + sent),
        program_us_per_unit: program,
        received,
        sent,
        ratio: ratio.ratio.median,
        goal: goals::of(ratio),
        reached: goals::reached(ratio),
        disturbed: ratio.disturbed || pairs.disturbed,
    })
}

/// What the program itself used, and not the kernel for it.
fn user_us_per_unit(one: &Measurement) -> f64 {
    let program = one.processes.iter().filter(|used| used.name == PROGRAM);
    program.map(|used| used.user_seconds).sum::<f64>() * 1e6 / one.units
}

/// Medians of what passed one way, of which `count` tells frames and bytes; `None` if they weren't counted.
pub fn frames(
    rounds: &[&Round],
    variant: &str,
    count: impl Fn(&Traffic) -> (u64, u64),
) -> Option<Frames> {
    let measured = rounds.iter().filter_map(|round| round.of(variant));
    let counts = measured.filter_map(|one| Some((one.units, count(one.traffic.as_ref()?))));
    let counts: Vec<(f64, (u64, u64))> = counts.collect();
    let per_unit = counts
        .iter()
        .map(|(units, (frames, _))| *frames as f64 / units);
    let bytes = counts
        .iter()
        .map(|(_, (frames, bytes))| *bytes as f64 / (*frames).max(1) as f64);
    Some(Frames {
        per_unit: Spread::of(per_unit)?.median,
        bytes: Spread::of(bytes)?.median,
    })
}

#[cfg(test)]
mod tests;
