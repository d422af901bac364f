use super::*;

const LINK: Credentials = Credentials(0);
const IP: Credentials = Credentials(1);
const TCP: Credentials = Credentials(2);

fn registry() -> Registry<u8> {
    Registry::new([("link", LINK), ("ip", IP), ("udp", TCP), ("tcp", TCP)])
}

#[test]
fn only_its_creator_publishes_under_a_name() {
    let mut registry = registry();
    registry.begin("link");
    for (name, by) in [("link", IP), ("ip", TCP), ("store", LINK)] {
        assert_eq!(registry.publish(name, by, 1), Err(Refusal::NotYours));
        assert_eq!(registry.offer(name), None);
    }
    assert_eq!(registry.publish("link", LINK, 1), Ok(()));
    assert_eq!(registry.offer("link"), Some(&1));
    assert_eq!(registry.publish("link", LINK, 2), Ok(()));
    assert_eq!(registry.offer("link"), Some(&2));
}

#[test]
fn only_who_was_told_attaches_and_once() {
    let mut registry = registry();
    registry.begin("link");
    assert!(registry.is_attached("link"), "nobody was told");
    registry.export("link", IP);
    registry.export("link", TCP);
    assert_eq!(registry.attach("link", LINK, 1), Err(Refusal::NotExported));
    assert_eq!(registry.attach("link", IP, 2), Err(Refusal::Stale));
    assert_eq!(registry.attach("link", IP, 0), Err(Refusal::Stale));
    assert_eq!(registry.attach("store", IP, 1), Err(Refusal::NotExported));
    assert_eq!(registry.attach("link", IP, 1), Ok(()));
    assert_eq!(registry.attach("link", IP, 1), Err(Refusal::NotExported));
    assert!(!registry.is_attached("link"), "tcp hasn't");
    registry.on_end(TCP);
    assert!(registry.is_attached("link"), "it never will");
}

#[test]
fn a_successor_is_of_another_generation() {
    let mut registry = registry();
    for generation in 1..5 {
        registry.begin("ip");
        assert_eq!(registry.generation("ip"), generation);
        registry.publish("ip", IP, 7).expect("its own");
        registry.export("ip", TCP);
        registry.on_end(IP);
        // Who starts now meets the successor first.
        assert_eq!(registry.generation("ip"), generation + 1);
        assert_eq!(registry.offer("ip"), None);
        assert!(registry.is_attached("ip"));
        assert_eq!(registry.attach("ip", TCP, generation), Err(Refusal::Stale));
        registry.on_end(IP);
        assert_eq!(registry.generation("ip"), generation + 1, "that was none");
    }
    assert_eq!(registry.generation("link"), 1);
    assert_eq!(registry.generation("store"), 0);
}

#[test]
fn one_that_never_ran_counts_too() {
    let mut registry = registry();
    registry.begin("ip");
    registry.begin("ip");
    assert_eq!(registry.generation("ip"), 2);
}

#[test]
fn all_names_of_a_process_end_with_it() {
    let mut registry = registry();
    for name in ["udp", "tcp", "ip"] {
        registry.begin(name);
    }
    registry.publish("udp", TCP, 1).expect("its own");
    registry.publish("tcp", TCP, 2).expect("its own");
    registry.publish("ip", IP, 3).expect("its own");
    registry.on_end(TCP);
    let all = ["udp", "tcp", "ip"];
    assert_eq!(all.map(|name| registry.offer(name)), [None, None, Some(&3)]);
    assert_eq!(all.map(|name| registry.generation(name)), [2, 2, 1]);
}
