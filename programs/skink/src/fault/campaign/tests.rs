use super::*;

#[test]
fn each_component_has_its_turn_in_every_round() {
    let names: Vec<String> = ["link", "ip", "tcp", "udp"].map(str::to_owned).into();
    let mut orders = std::collections::BTreeSet::new();
    for round in 0..20 {
        let order: Vec<String> = (0..4).map(|at| turn(&names, 7, round * 4 + at)).collect();
        let mut sorted = order.clone();
        sorted.sort();
        let mut all = names.clone();
        all.sort();
        assert_eq!(sorted, all);
        orders.insert(order);
    }
    assert!(orders.len() > 4, "{orders:?}");
    assert_eq!(turn(&names, 7, 3), turn(&names, 7, 3));
}
