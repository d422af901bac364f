use super::*;

#[test]
fn a_guest_sees_what_it_has_changed() {
    let mut guest = Guest::new();
    assert_eq!(guest.view(vec![(5, 1), (6, 2)]), [(5, 1), (6, 2)]);
    guest.note(0, Some(2));
    guest.note(6, None);
    guest.note(0, Some(1));
    assert_eq!(guest.view(vec![(5, 1), (6, 2)]), [(5, 1), (0, 1)]);
    assert_eq!(guest.changed(0), Some(Some(1)));
    assert_eq!(guest.changed(6), Some(None));
    assert_eq!(guest.changed(5), None);
    // Another process's doings are nothing to this one.
    guest.process ^= 1;
    assert_eq!(guest.view(vec![(5, 1)]), [(5, 1)]);
    guest.note(7, Some(1));
    assert_eq!(guest.changes.len(), 1);
}

fn strings(legacy: &Legacy) -> Vec<String> {
    let list = legacy.environment.iter().take_while(|at| !at.is_null());
    // SAFETY: strings of this test and of the list.
    let text = |at: &*const c_char| unsafe { CStr::from_ptr(*at) };
    list.map(|at| text(at).to_string_lossy().into_owned())
        .collect()
}

#[test]
fn the_environment_names_the_library_and_the_estate() {
    let _ = PRELOAD.set("/lib/skink.so".to_owned());
    for (given, expected) in [
        (vec![], vec!["LD_PRELOAD=/lib/skink.so"]),
        (
            vec![c"A=1", c"SKINK_ESTATE=7", c"LD_PRELOAD=/lib/other.so"],
            vec!["A=1", "LD_PRELOAD=/lib/skink.so:/lib/other.so"],
        ),
        (
            vec![
                c"LD_PRELOAD=/lib/other.so:/lib/skink.so",
                c"SKINK_ESTATES=1",
            ],
            vec!["SKINK_ESTATES=1", "LD_PRELOAD=/lib/other.so:/lib/skink.so"],
        ),
    ] {
        let mut list: Vec<*const c_char> = given.iter().map(|text| text.as_ptr()).collect();
        list.push(core::ptr::null());
        // SAFETY: the list ends with null.
        let legacy = unsafe { legacy(list.as_ptr(), Vec::new(), None) };
        let mut found = strings(&legacy);
        found.retain(|text| text != "SKINK_ESTATE=-1");
        assert_eq!(found, expected);
        assert!(strings(&legacy).contains(&"SKINK_ESTATE=-1".to_owned()));
    }
}
