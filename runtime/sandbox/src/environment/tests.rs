use super::*;

#[test]
fn the_block_is_found_behind_any_name() {
    let numbers: Vec<String> = (4..=52).map(|field| (field * 1000).to_string()).collect();
    let rest = numbers.join(" ");
    for name in ["skink", "a b", "(x) R 1 2", ")"] {
        assert_eq!(
            parse(&format!("17 ({name}) S {rest}\n")),
            Some((50_000, 1_000)),
            "{name}"
        );
    }
}

#[test]
fn what_isn_t_a_block_isn_t_wiped() {
    let zeroes = "0 ".repeat(49);
    for line in ["", "17 (skink) S", ")", &format!("17 (skink) S {zeroes}")] {
        assert_eq!(parse(line), None, "{line}");
    }
}

#[test]
fn the_kernel_tells_a_process_of_its_own() {
    let (_, bytes) = initial_block()
        .expect("/proc is there")
        .expect("a block, since the tests have an environment");
    assert!(bytes > 0);
}
