use std::io;

/// Processor time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// Busy time of the processor, whoever used it.
    pub busy: f64,
    /// Of it: in interrupts and softirqs.
    pub interrupts: f64,
    /// Idle time, waiting for disks included. The kernel measures it exactly, while the others are
    /// counted by which of them the clock's tick falls on.
    pub idle: f64,
    /// What the hypervisor gave to others while there was work.
    pub stolen: f64,
}

const TICKS_PER_SECOND: f64 = 100.0;

impl CpuTime {
    /// Busy time of processor `cpu` since the machine started (`/proc/stat`).
    pub fn of_processor(cpu: usize) -> io::Result<CpuTime> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let label = format!("cpu{cpu}");
        let line = stat
            .lines()
            .find(|line| line.split_whitespace().next() == Some(&label))
            .ok_or_else(|| io::Error::other(format!("/proc/stat has no line {label}")))?;
        let ticks: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|field| field.parse().ok())
            .collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
        // user nice system idle iowait irq softirq steal
        Ok(CpuTime {
            busy: at(0) + at(1) + at(2) + at(5) + at(6),
            interrupts: at(5) + at(6),
            idle: at(3) + at(4),
            stolen: at(7),
        })
    }
}

impl std::ops::Sub for CpuTime {
    type Output = CpuTime;

    fn sub(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            busy: self.busy - earlier.busy,
            interrupts: self.interrupts - earlier.interrupts,
            idle: self.idle - earlier.idle,
            stolen: self.stolen - earlier.stolen,
        }
    }
}

/// Processor time in seconds that a process and its threads have used, its children not counted.
pub fn cpu_seconds(pid: u32) -> io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |index: usize| -> f64 {
        fields
            .get(index)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0.0)
    };
    Ok((ticks(11) + ticks(12)) / TICKS_PER_SECOND)
}
