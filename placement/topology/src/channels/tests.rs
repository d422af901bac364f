use super::*;

fn of(text: &str) -> Vec<(Component, Component)> {
    let topology = Topology::parse("test", text).expect("a topology");
    let channels = topology.channels();
    channels.iter().map(|one| (one.from, one.to)).collect()
}

fn preset(name: &str) -> Vec<Channel> {
    Topology::load(name).expect("ships").channels()
}

#[test]
fn within_one_process_nothing_is_a_channel() {
    assert_eq!(preset("library"), []);
    assert_eq!(preset("single"), []);
}

#[test]
fn with_each_component_apart_every_channel_is_there_once_and_both_ways() {
    let each = Component::ALL.map(|one| format!("[[process]]\ncomponents = [\"{one}\"]\n"));
    let topology = Topology::parse("test", &each.concat()).expect("a topology");
    let channels = topology.channels();
    assert_eq!(channels, NEIGHBOURS);
    for one in &channels {
        let same = |other: &&Channel| (other.from, other.to) == (one.from, one.to);
        assert_eq!(channels.iter().filter(same).count(), 1, "{one:?}");
        let back = |other: &Channel| (other.to, other.from) == (one.from, one.to);
        assert!(channels.iter().any(back), "{one:?}");
    }
}

#[test]
fn link_filter_and_store_have_one_neighbour() {
    use Component::{Filter, Ip, Link, Store, Syscall};
    let neighbours = |of: Component| -> Vec<Component> {
        let sent = NEIGHBOURS.iter().filter(|one| one.from == of);
        sent.map(|one| one.to).collect()
    };
    assert_eq!(neighbours(Link), [Ip]);
    assert_eq!(neighbours(Filter), [Ip]);
    assert_eq!(neighbours(Store), [Syscall]);
}

#[test]
fn only_what_crosses_is_a_channel() {
    use Component::{Ip, Link, Syscall, Tcp, Udp};
    let cut_at_ip = of("[[process]]\ncomponents = [\"link\"]\n\
         [[process]]\ncomponents = [\"ip\", \"filter\", \"udp\", \"tcp\", \"syscall\", \"store\"]\n");
    assert_eq!(cut_at_ip, [(Link, Ip), (Ip, Link)]);
    let cut_at_tcp = of("[[process]]\ncomponents = [\"tcp\"]\n\
         [[process]]\ncomponents = [\"ip\", \"filter\", \"udp\", \"link\", \"syscall\", \"store\"]\n");
    assert_eq!(
        cut_at_tcp,
        [(Ip, Tcp), (Tcp, Ip), (Syscall, Tcp), (Tcp, Syscall)]
    );
    assert!(!cut_at_tcp.contains(&(Ip, Udp)));
}
