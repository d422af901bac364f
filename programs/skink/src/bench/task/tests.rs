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

#[test]
fn without_a_stack_the_back_end_answers_and_looks_on_where_one_is_waited_for() {
    let site = Site::new().unwrap();
    let line = |variant: &Variant, pace| {
        let line = Task::Pairs(64, pace).server(&site, Tuning::Nothing, variant);
        let line = line.unwrap().join(OsStr::new(" "));
        line.to_string_lossy().into_owned()
    };
    let raw = &Variant::raw(&[BackEnd::Xdp], false)[0];
    assert!(line(raw, Pace::InTurn).ends_with("peer reflect --look-on"));
    assert!(line(raw, Pace::Most).ends_with("peer reflect"));
    assert!(line(&Variant::kernels()[0], Pace::InTurn).ends_with("peer datagrams"));
}
