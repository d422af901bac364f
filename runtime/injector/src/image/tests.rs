use super::*;

#[test]
fn whose_functions() {
    for ours in [
        "skink_tcp::instance::Tcp::input",
        "<skink_tcp::state::State as core::fmt::Debug>::fmt",
        "<&mut skink_ip::Ip as core::ops::Drop>::drop",
        "skink_split::tcp_host::<impl skink_split::Packets for skink_tcp::Tcp>::packet",
    ] {
        assert!(is_of_crates(ours, "skink_"), "{ours}");
    }
    for other in [
        "core::ptr::drop_in_place<skink_tcp::instance::Tcp>",
        "<alloc::vec::Vec<skink_tcp::Segment> as core::ops::Drop>::drop",
        "memcpy",
        "main",
    ] {
        assert!(!is_of_crates(other, "skink_"), "{other}");
    }
}

#[test]
fn panics_of_checks() {
    assert!(panics("core::panicking::panic_bounds_check"));
    assert!(panics("core::option::unwrap_failed"));
    assert!(!panics("core::option::Option<T>::map"));
}

/// This test's own executable.
#[test]
fn reads_an_executable() {
    let path = std::env::current_exe().expect("it has a path");
    let image = Image::read(&path, |name| is_of_crates(name, "skink_injector")).expect("readable");
    let one = image
        .functions
        .iter()
        .find(|it| it.name.ends_with("mutate::mutate"));
    let one = one.expect("it has that function");
    let address = one.code.address + 3;
    assert_eq!(image.name_at(address), Some(one.name.as_str()));
    assert!(!image.landmarks.panics.is_empty() && !image.landmarks.copies.is_empty());
    let none = Image::read(&path, |_| false).map(drop);
    assert!(none.is_err_and(|error| error.to_string().contains("stripped")));
}
