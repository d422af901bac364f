//! Faults in a process of the test's own: this program, executed anew, which then goes round in a loop.

use skink_injector::{Class, Ending, Image, InjectError, Outcome, Plan, inject, is_of_crates};
use std::hint::black_box;
use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Says that the process is to go round.
const LOOP: &str = "--go-round";
/// Exit code of a process that has found a wrong result.
const WRONG: i32 = 3;

/// Has branches, checks of bounds, locals and memory of its own to be spoilt.
#[inline(never)]
fn work(numbers: &mut [u64], rounds: usize) -> u64 {
    let mut sum = 0_u64;
    let mut at = 0;
    for round in 0..rounds {
        at = (at * 5 + 7) % 97;
        let number = numbers[black_box(at)];
        sum = if number & 1 == 0 {
            sum.wrapping_add(number)
        } else {
            sum.rotate_left(5) ^ number
        };
        numbers[black_box(at)] = number.wrapping_mul(3).wrapping_add(round as u64);
    }
    sum
}

#[inline(never)]
fn once(rounds: usize) -> u64 {
    let mut numbers: Vec<u64> = black_box((0..97).collect());
    work(&mut numbers, rounds)
}

fn go_round() -> ! {
    let right = once(1_000);
    println!("going round");
    loop {
        if once(black_box(1_000)) != right {
            std::process::exit(WRONG);
        }
    }
}

/// Killed when it goes.
struct Victim(Child);

impl Victim {
    fn start() -> Victim {
        let mut command = Command::new(std::env::current_exe().expect("it has a path"));
        command
            .arg(LOOP)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("it can be executed again");
        // Before that it may not have mapped what it executes.
        let mut said = [0];
        let output = child.stdout.as_mut().expect("it has an output");
        output.read_exact(&mut said).expect("it says something");
        Victim(child)
    }

    fn inject(&self, image: &Image, class: Class, seed: u64) -> Result<Outcome, InjectError> {
        let plan = Plan {
            class,
            seed,
            most: 20,
            patience: Duration::from_secs(3),
        };
        inject(self.0.id(), image, &plan, &mut |_| {})
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn image() -> Image {
    let path = std::env::current_exe().expect("it has a path");
    let own = |name: &str| is_of_crates(name, "child::work") || is_of_crates(name, "child::once");
    Image::read(&path, own).expect("it can be read")
}

/// The first trap that is met ends it, where it was put.
fn a_trap(image: &Image) {
    let outcome = Victim::start().inject(image, Class::Stop, 1);
    let outcome = outcome.expect("faults can be injected");
    let end = outcome.end.as_ref().expect("it dies of it");
    assert_eq!(end.ending, Ending::Signal(nix::libc::SIGTRAP));
    let last = outcome.injections.last().expect("there is one");
    assert_eq!(end.place.as_ref(), Some(&last.place));
    assert!(
        last.activated_ms.is_some() && last.place.starts_with("child::"),
        "{last:?}"
    );
    assert!(outcome.executed > 20, "{outcome:?}");
}

/// Whatever it is, it is told, changes an instruction, and is met; sooner or later the results are wrong,
/// or it ends in another way.
fn others(image: &Image) {
    for (class, seed) in [
        (Class::Loop, 2),
        (Class::Dst, 3),
        (Class::Init, 4),
        (Class::Random, 5),
    ] {
        let outcome = Victim::start().inject(image, class, seed);
        let outcome = outcome.expect("faults can be injected");
        let active = outcome
            .injections
            .iter()
            .filter(|it| it.activated_ms.is_some());
        assert!(active.count() > 0, "{class}: {outcome:?}");
        for one in &outcome.injections {
            assert!(class == Class::Random || one.class == class);
            assert!(one.what.starts_with(one.class.word()) && !one.before.is_empty());
        }
    }
}

/// Nothing fits: it is let go unharmed.
fn nothing_fits(image: &Image) {
    let victim = Victim::start();
    let refused = victim.inject(image, Class::Lock, 1);
    assert!(
        matches!(refused, Err(InjectError::Idle(_, Class::Lock))),
        "{refused:?}"
    );
    assert!(
        matches!(victim.state(), Some('R' | 'S')),
        "{:?}",
        victim.state()
    );
}

/// Only memory of the kind that was asked for. What the process makes of it is chance: it may not use the word.
fn memory(image: &Image) {
    for (class, seed, is_stack) in [(Class::Stack, 6, true), (Class::Heap, 7, false)] {
        let outcome = Victim::start().inject(image, class, seed);
        let outcome = outcome.expect("memory can be spoilt");
        let count = outcome.injections.len();
        assert!(
            count == 20 || (count > 0 && outcome.end.is_some()),
            "{outcome:?}"
        );
        for one in &outcome.injections {
            assert_eq!(one.place == "the stack", is_stack, "{one:?}");
            assert!(one.activated_ms.is_some(), "{one:?}");
        }
    }
}

fn the_whole(image: &Image) {
    let killed = Victim::start().inject(image, Class::Kill, 1);
    assert!(killed.is_ok_and(|outcome| outcome.end.is_some()));
    let victim = Victim::start();
    let plan = Plan {
        class: Class::Hang,
        seed: 1,
        most: 1,
        patience: Duration::ZERO,
    };
    let outcome = inject(victim.0.id(), image, &plan, &mut |_| {}).expect("it can be stopped");
    assert!(outcome.end.is_none());
    // A signal to another process takes effect at once or nearly so.
    let stopped = (0..1_000_000).any(|_| victim.state() == Some('T'));
    assert!(stopped, "{:?}", victim.state());
}

fn nobody(image: &Image) {
    let victim = Victim::start();
    let pid = victim.0.id();
    drop(victim);
    let plan = Plan {
        class: Class::Random,
        seed: 1,
        most: 1,
        patience: Duration::ZERO,
    };
    let refused = inject(pid, image, &plan, &mut |_| {});
    assert!(
        matches!(refused, Err(InjectError::Gone(gone)) if gone == pid),
        "{refused:?}"
    );
}

/// One thing that must hold, tried on what was read of this program's file.
type Case = fn(&Image);

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(LOOP) {
        go_round();
    }
    if !cfg!(target_arch = "x86_64") {
        println!("SKIP: faults are injected on x86-64 only");
        return ExitCode::SUCCESS;
    }
    let image = image();
    let cases: [(&str, Case); 6] = [
        ("a_trap", a_trap),
        ("others", others),
        ("nothing_fits", nothing_fits),
        ("memory", memory),
        ("the_whole", the_whole),
        ("nobody", nobody),
    ];
    for (name, case) in cases {
        case(&image);
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}
