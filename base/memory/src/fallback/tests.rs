use super::*;

fn fallback(fd: u32, reason: FallbackReason, endpoint: &str) -> Fallback {
    let endpoint: std::net::SocketAddr = endpoint.parse().expect("an endpoint");
    Fallback {
        fd,
        reason,
        protocol: 6,
        detail: 7,
        endpoint: endpoint.into(),
    }
}

#[test]
fn a_reader_sees_what_was_set_and_not_what_was_cleared() {
    let table = FallbackTable::create().expect("a table");
    let first = fallback(3, FallbackReason::Loopback, "127.0.0.1:80");
    let second = fallback(4095, FallbackReason::NoRoute, "[2001:db8::1]:65535");
    let third = fallback(9, FallbackReason::Configured, "0.0.0.0:0");
    for entry in [&first, &second, &third] {
        table.set(entry);
    }
    table.set(&fallback(4096, FallbackReason::Loopback, "127.0.0.1:80"));
    table.clear(9);
    table.clear(u32::MAX);

    let fd = table.fd().try_clone_to_owned().expect("a descriptor");
    let reader = FallbackTable::open_read_only(fd).expect("the same table");
    assert_eq!(reader.iter().collect::<Vec<_>>(), [first, second]);
    let replaced = fallback(3, FallbackReason::KernelAddress, "10.0.0.1:1");
    table.set(&replaced);
    assert_eq!(reader.get(3), Some(replaced));
}

#[test]
fn memory_of_any_content_and_size_is_read_without_harm() {
    let mapping = Mapping::create("test", 3 * size_of::<Entry>() + 8).expect("memory");
    for (index, value) in [u64::MAX, 0xaa, 1].into_iter().enumerate() {
        let at = index * size_of::<Entry>();
        mapping
            .atomics::<AtomicU64>(at)
            .store(value, Ordering::Relaxed);
    }
    let fd = mapping.fd().try_clone_to_owned().expect("a descriptor");
    let table = FallbackTable::open_read_only(fd).expect("a table");
    let found: Vec<_> = table.iter().map(|entry| (entry.fd, entry.reason)).collect();
    assert_eq!(found, [(2, FallbackReason::Loopback)]);
}
