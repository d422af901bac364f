//! What was measured of the back ends. docs/performance.md has the same tables; a test holds them together.

/// Work per server CPU second with a stack inside the program, divided by that of the kernel's stack at its best.
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

/// A veth with segmentation offload at both ends, MTU 1500: medians of five undisturbed rounds of `skink bench web` and `kv`, 2026-11-22,
/// Linux 6.18 on x86-64 with two processors (bench/results/0.1.0-faster).
pub const VETH: [Figure; 7] = [
    figure(SMALL, 1.05, 1.36),
    figure("20B-close", 1.28, 1.57),
    figure(LARGE, 0.87, 1.21),
    figure("22KB-close", 1.45, 2.13),
    figure("1MB", 0.85, 0.85),
    figure("redis-get", 1.21, 2.31),
    figure("memcached-get", 1.55, 1.90),
];

/// What AF_XDP does of what AF_PACKET does; 0 if it wasn't measured.
pub fn ratio(figures: &[Figure], workload: &str) -> f64 {
    let figure = figures.iter().find(|figure| figure.workload == workload);
    figure.map_or(0.0, |figure| figure.xdp / figure.packet)
}
