use super::*;

#[test]
fn processes_have_names_by_what_they_are() {
    for (command, expected) in [
        ("nginx: worker process\0", "program"),
        ("/usr/bin/skink\0up\0--name\0bench\0", "supervisor"),
        (
            "target/release/skink\0run\0--nic\0x\0--\0nginx\0",
            "supervisor",
        ),
        ("skink\0component\0transport\0", "transport"),
        ("/bin/skink\0bench\0peer\0serve\0one\0", "program"),
        ("", "program"),
    ] {
        assert_eq!(name(command.as_bytes()), expected, "{command:?}");
    }
}

#[test]
fn files_of_proc_are_read() {
    let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
    assert_eq!(parse_status(status), (12, 3));
    assert_eq!(parse_status(""), (0, 0));
    let stat = "7 (a) b (c) S 3 1 1 0 -1 0 0 0 0 0 20 5 0 0 20 0 1";
    assert_eq!(parse_stat(stat), Some((3, 20, 5)));
    assert_eq!(parse_stat("7 (a S"), None);
}

#[test]
fn what_was_used_is_summed_by_name() {
    let used = |name: &str, factor: u64| Used {
        name: name.to_owned(),
        user_ticks: 100 * factor,
        system_ticks: 50 * factor,
        voluntary: 5 * factor,
        involuntary: factor,
    };
    let before = Look(BTreeMap::from([
        (4, used("program", 1)),
        (6, used("link", 1)),
        (9, used("gone", 1)),
    ]));
    let after = Look(BTreeMap::from([
        (4, used("program", 3)),
        (5, used("program", 1)),
        (6, used("link", 1)),
    ]));
    let costs = after.since(&before);
    let [link, program] = costs.as_slice() else {
        panic!("{costs:?}");
    };
    assert_eq!((link.name.as_str(), link.user_seconds), ("link", 0.0));
    let expected = ProcessCosts {
        name: "program".to_owned(),
        user_seconds: 3.0,
        system_seconds: 1.5,
        voluntary_switches: 15,
        involuntary_switches: 3,
    };
    assert_eq!(*program, expected);
}

#[test]
fn one_can_look_at_oneself() {
    let own = std::process::id();
    let costs = look(&[own]).since(&Look(BTreeMap::new()));
    let program = costs.iter().find(|one| one.name == "program");
    assert!(program.is_some(), "{costs:?}");
    assert!(look(&[]).0.is_empty());
}

#[test]
fn memory_is_read_in_kibibytes() {
    let text = "MemTotal:       24000000 kB\nShmem:             12 kB\nSlab:\n";
    assert_eq!(kibibytes(text, "Shmem:"), 12);
    assert_eq!(kibibytes(text, "Slab:"), 0);
    assert_eq!(kibibytes(text, "Pss_Anon:"), 0);
    let own = memory(&[std::process::id()], &MachineMemory::look(), 3);
    assert!(
        own.processes_bytes > 1 << 16 && own.connections == 3,
        "{own:?}"
    );
}
