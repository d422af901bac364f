use super::*;

#[test]
fn batches_are_short_while_frames_overtake_others_and_a_little_longer() {
    let mut batches = BatchBytes::default();
    let at = |millis| Instant::ZERO + Duration::from_millis(millis);
    let mut next = |millis, overtaken| batches.next(at(millis), overtaken);
    assert_eq!(next(0, 0), BatchBytes::ALONE);
    assert_eq!(next(1, 3), BatchBytes::IN_COMPANY);
    assert_eq!(next(5, 0), BatchBytes::IN_COMPANY);
    assert_eq!(next(5, 1), BatchBytes::IN_COMPANY);
    assert_eq!(next(9, 0), BatchBytes::IN_COMPANY);
    assert_eq!(next(10, 0), BatchBytes::ALONE);
}
