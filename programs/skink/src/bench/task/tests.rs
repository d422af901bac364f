use super::super::plan::LIBRARY;
use super::super::variant::{BackEnd, Place};
use super::*;

#[test]
fn without_a_stack_only_frames_are_answered() {
    let raw = Variant::raw(&[BackEnd::Xdp], true);
    let mut stacks = Variant::kernels().to_vec();
    stacks.extend(Variant::of_skink(&Place::all(), &[BackEnd::Xdp], true));
    for task in LIBRARY {
        assert!(stacks.iter().all(|variant| task.runs_on(variant)), "{task}");
        let pairs = matches!(task, Task::Pairs(..));
        assert!(
            raw.iter().all(|variant| task.runs_on(variant) == pairs),
            "{task}"
        );
    }
}
