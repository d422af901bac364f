//! What idle connections take.

use super::super::results::{Measurement, Memory, Results};
use super::super::statistics::{Spread, counting, variants};
use super::row;
use crate::tools::table;

const MEBIBYTE: f64 = (1 << 20) as f64;

/// A line for each variant; nothing if no connections were kept.
pub fn memory(results: &Results) -> String {
    let mut rows = vec![row([
        "variant",
        "idle connections",
        "processes MiB",
        "shared MiB",
        "both MiB",
        "bytes/connection",
        "kernel objects MiB",
    ])];
    for workload in &results.workloads {
        let (rounds, _) = counting(workload);
        let median = |variant: &str, figure: fn(&Memory) -> u64| {
            let measured = rounds.iter().filter_map(|round| round.of(variant));
            let figures = measured.filter_map(|one: &Measurement| one.memory.as_ref().map(figure));
            Spread::of(figures.map(|bytes| bytes as f64)).map(|spread| spread.median)
        };
        // That of the same variant without any, which comes first.
        let mut without = 0.0;
        for variant in variants(&rounds) {
            let figures = [
                |one: &Memory| one.processes_bytes,
                |one: &Memory| one.shared_bytes,
                |one: &Memory| one.slab_bytes,
            ];
            let count = median(&variant, |one| one.connections.into());
            let [processes, shared, slab] = figures.map(|figure| median(&variant, figure));
            let (Some(count), Some(processes), Some(shared), Some(slab)) =
                (count, processes, shared, slab)
            else {
                continue;
            };
            let both = processes + shared;
            let each = if count > 0.0 {
                format!("{:.0}", (both - without) / count)
            } else {
                without = both;
                "-".to_owned()
            };
            let cells = [processes, shared, both].map(|bytes| format!("{:.1}", bytes / MEBIBYTE));
            let mut line = vec![variant, format!("{count:.0}")];
            line.extend(cells);
            line.extend([each, format!("{:.1}", slab / MEBIBYTE)]);
            rows.push(line);
        }
    }
    if rows.len() < 2 {
        return String::new();
    }
    format!(
        "Memory when all connections are there; medians over rounds. \"Processes\": what the server and all processes\n\
         of the stack have to themselves. \"Shared\": memory that processes share, on the whole machine, beyond what\n\
         there was before. \"Kernel objects\": slab, likewise; the client's sockets are in it, and on the kernel the\n\
         server's as well.\n\n{}\n",
        table(&rows, &[1, 2, 3, 4, 5, 6])
    )
}
