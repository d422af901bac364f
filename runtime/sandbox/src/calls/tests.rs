use super::*;
use std::collections::BTreeSet;

const LISTS: [(&str, &[Call]); 5] = [
    ("event loop", EVENT_LOOP),
    ("shared memory", SHARED_MEMORY),
    ("packet", NIC_PACKET),
    ("xdp", NIC_XDP),
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
