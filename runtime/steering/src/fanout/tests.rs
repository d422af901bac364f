use super::*;

fn owner(number: u8) -> Owner {
    Owner::new(number).expect("less than 64")
}

fn numbers(group: &FanoutGroup) -> Vec<u8> {
    group.members().iter().map(|owner| owner.number()).collect()
}

#[test]
fn the_last_member_moves_into_the_hole() {
    // Members before, who leaves, members after, who moved.
    type Row = (&'static [u8], u8, &'static [u8], Option<(u8, u32)>);
    let table: &[Row] = &[
        (&[4], 4, &[], None),
        (&[4, 5, 6], 6, &[4, 5], None),
        (&[4, 5, 6], 4, &[6, 5], Some((6, 0))),
        (&[4, 5, 6, 7], 5, &[4, 7, 6], Some((7, 1))),
        (&[4, 5], 9, &[4, 5], None),
    ];
    for (before, leaves, after, moved) in table {
        let mut group = FanoutGroup::new();
        for (index, member) in before.iter().enumerate() {
            assert_eq!(group.join(owner(*member)), index as u32);
        }
        let answer = group.leave(owner(*leaves));
        assert_eq!(answer.map(|(who, index)| (who.number(), index)), *moved);
        assert_eq!(numbers(&group), *after, "{before:?} without {leaves}");
    }
}

#[test]
fn after_the_link_was_down_members_are_in_the_order_they_joined() {
    let mut group = FanoutGroup::new();
    for member in [0, 1, 2, 3] {
        group.join(owner(member));
    }
    group.leave(owner(0));
    assert_eq!(numbers(&group), [3, 1, 2]);
    group.relink();
    assert_eq!(numbers(&group), [1, 2, 3]);
    assert_eq!(group.join(owner(2)), 1, "joining twice changes nothing");
}
