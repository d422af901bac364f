use super::*;
use std::collections::BTreeSet;

const LISTS: [(&str, &[Call]); 8] = [
    ("event loop", EVENT_LOOP),
    ("memory", MEMORY),
    ("programs", PROGRAMS),
    ("reclaim", RECLAIM),
    ("packet", NIC_PACKET),
    ("xdp", NIC_XDP),
    ("shared", NIC_SHARED),
    ("tap", NIC_TAP),
];

#[test]
fn no_list_has_a_call_that_leads_outside() {
    let forbidden = [
        libc::SYS_openat,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_kill,
        libc::SYS_ioctl,
        libc::SYS_prctl,
        libc::SYS_prlimit64,
        libc::SYS_bpf,
        libc::SYS_io_uring_setup,
        libc::SYS_userfaultfd,
        libc::SYS_pkey_mprotect,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_setsockopt,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
    ];
    for (list, calls) in LISTS {
        for call in calls {
            assert!(!forbidden.contains(&call.number), "{list}: {}", call.name);
        }
    }
}

#[test]
fn a_list_names_each_call_once_and_rules_have_conditions() {
    for (list, calls) in LISTS {
        let numbers: BTreeSet<_> = calls.iter().map(|call| call.number).collect();
        assert_eq!(numbers.len(), calls.len(), "{list}");
        for call in calls {
            assert!(call.rules.iter().all(|rule| !rule.is_empty()), "{list}");
        }
    }
}

#[test]
fn a_futex_rule_ignores_the_modifiers_only() {
    let modifiers = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
    assert_eq!(FUTEX_COMMAND & modifiers, 0);
    assert_eq!(FUTEX_COMMAND | modifiers, INT);
}

#[test]
fn a_component_has_the_calls_of_its_tasks_alone() {
    let filter = Tasks::default();
    let ip = Tasks {
        memory: true,
        ..filter
    };
    let syscall = Tasks {
        programs: true,
        ..ip
    };
    let tcp = Tasks {
        transports: true,
        ..syscall
    };
    let link = |kind| Tasks {
        nic: Some(kind),
        ..ip
    };
    let (on_tap, on_packet, on_xdp) = (link("tap"), link("packet"), link("xdp"));
    let all = [filter, ip, syscall, tcp, on_tap, on_packet, on_xdp];
    // (call, who of these may make it)
    let table = [
        ("write", 0b111_1111),
        ("mmap", 0b111_1111),
        ("fstat", 0b111_1110),
        ("getrandom", 0b000_1100),
        ("fallocate", 0b000_1000),
        ("read", 0b111_1111),
        ("writev", 0b111_0000),
        ("getsockopt", 0b110_0000),
        ("memfd_create", 0),
        ("mprotect", 0),
    ];
    for (name, expected) in table {
        let mut may = 0;
        for (bit, tasks) in all.iter().enumerate() {
            let has = tasks
                .lists()
                .into_iter()
                .flatten()
                .any(|it| it.name == name);
            may |= u32::from(has) << bit;
        }
        assert_eq!(may, expected, "{name}: {may:07b}");
    }
}

#[test]
fn an_xdp_program_behind_the_driver_takes_no_other_calls() {
    let lists = |nic| {
        let tasks = Tasks {
            nic: Some(nic),
            ..Tasks::default()
        };
        let calls = tasks.lists().into_iter().flatten();
        calls.map(|call| call.name).collect::<Vec<_>>()
    };
    assert_eq!(lists("xdp-generic"), lists("xdp"));
}
