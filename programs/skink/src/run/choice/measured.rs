//! What was measured of the back ends. docs/performance.md has the same tables; a test holds them together.

use super::Use;

/// Work per server CPU second, divided by that of the kernel's stack at its best on the same kind of cable.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// As docs/performance.md calls it.
    pub workload: &'static str,
    pub packet: f64,
    pub xdp: f64,
}

/// The workload that stands for small requests.
pub const SMALL: &str = "20B";
/// The workload that stands for large answers.
pub const LARGE: &str = "22KB";

const fn figure(workload: &'static str, packet: f64, xdp: f64) -> Figure {
    Figure {
        workload,
        packet,
        xdp,
    }
}

/// Where a stack is, whether the veth has segmentation offload at both ends, and what was measured there: MTU 1500, medians of five undisturbed
/// rounds, 2026-11-23, Linux 6.18 on x86-64 with two processors (bench/results/0.1.0-library). The first is of `skink bench
/// library`, the others of `skink bench topologies`, where `single` stands for stacks apart.
pub const VETH: [(Use, bool, &[Figure]); 4] = [
    (
        Use::Inside,
        true,
        &[
            figure(SMALL, 1.58, 2.50),
            figure("20B-close", 1.26, 3.15),
            figure(LARGE, 1.13, 1.86),
            figure("redis-get", 1.57, 2.45),
            figure("memcached-get", 1.98, 3.51),
            figure("bulk-send", 1.67, 2.02),
            figure("bulk-receive", 1.12, 1.06),
            figure("conn", 1.17, 3.06),
        ],
    ),
    (
        Use::Inside,
        false,
        &[
            figure(SMALL, 1.43, 1.77),
            figure(LARGE, 1.13, 1.15),
            figure("bulk-send", 0.87, 0.78),
            figure("bulk-receive", 0.80, 0.77),
            figure("rr-16", 0.72, 0.71),
        ],
    ),
    (
        Use::Apart,
        true,
        &[
            figure(SMALL, 1.46, 2.13),
            figure(LARGE, 1.04, 1.66),
            figure("bulk-send", 1.41, 2.07),
            figure("bulk-receive", 0.79, 0.85),
            figure("rr-16", 0.98, 1.04),
        ],
    ),
    (
        Use::Apart,
        false,
        &[
            figure(SMALL, 1.44, 1.42),
            figure(LARGE, 1.34, 1.09),
            figure("bulk-send", 0.74, 0.71),
            figure("bulk-receive", 0.68, 0.71),
            figure("rr-16", 0.88, 0.91),
        ],
    ),
];

/// What AF_XDP does of what AF_PACKET does; 0 if it wasn't measured.
pub fn ratio(used: Use, cuts: bool, workload: &str) -> f64 {
    let figures = VETH.iter().filter(|it| (it.0, it.1) == (used, cuts));
    let mut figures = figures.flat_map(|it| it.2);
    let figure = figures.find(|figure| figure.workload == workload);
    figure.map_or(0.0, |figure| figure.xdp / figure.packet)
}
