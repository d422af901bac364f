use super::*;
use skink_nic::Load;

const BUSY: Load = Load {
    busy: true,
    small: true,
    bulk: false,
};
const IDLE_LOAD: Load = Load {
    busy: false,
    small: false,
    bulk: false,
};

/// A process in its event loop.
struct Process {
    nic_use: NicUse,
    micros: u64,
    traffic: Traffic,
}

impl Process {
    fn new() -> Process {
        Process {
            nic_use: NicUse::new(),
            micros: 1_000_000,
            traffic: Traffic::NONE,
        }
    }

    fn at(&self) -> Instant {
        Instant::ZERO + Duration::from_micros(self.micros)
    }

    /// A round that takes `micros` and moves so many frames of 100 bytes.
    fn round(&mut self, micros: u64, frames: u64) {
        let begun = self.at();
        self.micros += micros;
        self.traffic.frames_in += frames;
        self.traffic.bytes_in += frames * 100;
        self.traffic.frames_out += frames;
        self.traffic.bytes_out += frames * 100;
        // (In a process of `link` alone no round is busy that doesn't fill a batch.)
        self.nic_use.after_round(begun, true, self.traffic);
    }

    fn sleep(&mut self, longest: u64) {
        self.nic_use.falls_asleep(self.at());
        let most = self.nic_use.longest_sleep().map(|it| it.as_micros());
        let most = most.map_or(longest, |most| u64::try_from(most).unwrap());
        self.micros += longest.min(most);
    }

    /// For `count` milliseconds it has frames for most of the time.
    fn works(&mut self, count: u32) {
        for _ in 0..count * 5 {
            self.round(170, 12);
            self.sleep(30);
        }
    }

    fn load(&self) -> Load {
        self.nic_use.judge.load()
    }
}

#[test]
fn one_that_works_has_a_load() {
    let mut process = Process::new();
    process.works(5);
    assert_eq!(process.load(), IDLE_LOAD, "it takes a while");
    process.works(20);
    assert_eq!(process.load(), BUSY);
}

#[test]
fn one_that_has_nothing_to_do_any_more_says_so_and_then_sleeps_on() {
    let mut process = Process::new();
    process.works(30);
    assert_eq!(process.nic_use.longest_sleep(), Some(IDLE));
    process.sleep(3_600_000_000);
    process.round(5, 0);
    assert_eq!(process.load(), IDLE_LOAD);
    assert_eq!(process.nic_use.longest_sleep(), None);
}

#[test]
fn one_that_got_no_processor_while_frames_came_has_its_load_still() {
    let mut process = Process::new();
    process.works(30);
    process.nic_use.falls_asleep(process.at());
    process.micros += 30_000;
    process.round(100, 64);
    assert_eq!(process.load(), BUSY);
}

#[test]
fn who_waits_for_each_answer_isnt_a_load() {
    let mut process = Process::new();
    process.works(30);
    for _ in 0..1_000 {
        process.round(20, 1);
        process.sleep(80);
    }
    assert_eq!(process.load(), IDLE_LOAD);
    for _ in 0..1_000 {
        process.round(20, 1);
        process.sleep(80);
        assert_eq!(
            process.nic_use.longest_sleep(),
            None,
            "nor does it wake for it"
        );
    }
}

#[test]
fn while_it_waits_for_others_that_are_at_work_it_is_busy() {
    let mut process = Process::new();
    for _ in 0..100 {
        process.sleep(100);
        process.round(50, 12);
        process.nic_use.falls_asleep(process.at());
        process.micros += 350;
        process.nic_use.is_called(process.at());
    }
    assert_eq!(process.load(), BUSY);
    let mut alone = Process::new();
    for _ in 0..100 {
        alone.sleep(450);
        alone.round(50, 12);
    }
    assert!(!alone.load().busy);
}
