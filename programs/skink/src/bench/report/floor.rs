//! What the library costs beside the least that it could.

use super::super::floor::Floor;
use super::figures::{digits, time_unit};
use super::row;
use crate::tools::table;

/// A line for each workload and variant; nothing if no back end was measured without a stack.
pub fn table_of(floors: &[Floor]) -> String {
    if floors.is_empty() {
        return String::new();
    }
    let mut rows = vec![row([
        "workload",
        "variant",
        "kernel",
        "Skink",
        "floor",
        "of it the program",
        "Skink ÷ floor",
        "kernel ÷ floor",
        "kernel ÷ Skink",
        "goal",
        "reached",
        "times in",
    ])];
    rows.extend(floors.iter().map(line));
    format!(
        "The floor: server CPU time, medians over rounds, of the kernel on the same cable and of Skink, beside the program's\n\
         own and that of Skink's back end without a stack for as many frames. \"Kernel ÷ floor\" is the most that could\n\
         be had; \"kernel ÷ Skink\" is the ratio of work per server CPU second, the median within rounds, and has the goal.\n\n\
         {}\n\
         The program's own is its user time on the kernel. A frame is half a pair of 64B up to 512 bytes on the mean, of\n\
         1514B above. TCP isn't in the floor, nor what the program asks of the kernel besides, such as reading a file;\n\
         and the back end alone always had work, so sleeping and waking aren't either. Where much more goes one way than\n\
         the other it is rough: receiving and sending needn't cost the same. \"-\": segments larger than frames passed\n\
         the cable, or only the back end (AF_PACKET and TAP), or pairs of that size weren't measured.\n\n",
        table(&rows, &[2, 3, 4, 5, 6, 7, 8, 9])
    )
}

fn line(floor: &Floor) -> Vec<String> {
    let (unit, scale) = time_unit(floor.unit);
    let time = |us: f64| format!("{:.*}", digits(us / scale), us / scale);
    let to_floor = |us: f64| {
        let ratio = floor.floor_us_per_unit.map(|least| us / least);
        ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
    };
    let reached = match floor.reached {
        None => "-",
        Some(true) => "yes",
        Some(false) => "no",
    };
    let mark = if floor.disturbed { ", DISTURBED" } else { "" };
    vec![
        floor.workload.clone(),
        floor.variant.clone(),
        time(floor.kernel_us_per_unit),
        time(floor.skink_us_per_unit),
        floor.floor_us_per_unit.map_or("-".to_owned(), time),
        time(floor.program_us_per_unit),
        to_floor(floor.skink_us_per_unit),
        to_floor(floor.kernel_us_per_unit),
        format!("{:.2}", floor.ratio),
        floor
            .goal
            .map_or("-".to_owned(), |goal| format!("{goal:.2}")),
        format!("{reached}{mark}"),
        unit,
    ]
}
