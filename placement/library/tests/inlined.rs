//! A message between two components is an inlined call: no function is left of it.

use skink_library::Stack;
use std::process::Command;

/// What messages are made of, without generic arguments: the trait's method and, where there is one,
/// the receiving component's function behind it.
const MESSAGES: [&str; 19] = [
    "Tcp as Component::handle",
    "Udp as Component::handle",
    "Below as Network::send",
    "Below as SocketEvents::tcp_event",
    "Below as SocketEvents::udp_event",
    "Guarded as FrameOutput::send",
    "Guarded as FrameOutput::limits",
    "LinkOutput as FrameOutput::send",
    "LinkOutput as FrameOutput::limits",
    "Tap as NicOutput::send",
    "Tap as NicOutput::room",
    "Tcp::on_segment",
    "Tcp::request",
    "Udp::receive",
    "Udp::request",
    "Ip::send",
    "Ip::receive",
    "Link::send",
    "Link::receive",
];

/// The functions in which they are.
const SENDERS: [&str; 6] = [
    "Up::frame",
    "Stack::tcp_request",
    "Stack::udp_request",
    "Outgoing::send",
    "Udp::send_now",
    "Ip::send_frame_slowly",
];

/// Names of this program's functions; `None` without `nm`.
fn functions() -> Option<Vec<String>> {
    let program = std::env::current_exe().expect("this program's path");
    let output = Command::new("nm").arg("-C").arg(program).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.splitn(3, ' ').nth(2));
    Some(names.map(plain).collect())
}

/// `<a::B<C> as d::E<F>>::g` is `B as E::g`, and `a::<impl b::C>::d` or `a::C::d` is `C::d`.
fn plain(name: &str) -> String {
    let (mut depth, mut flat) = (0, String::new());
    let inner = name
        .replace("<impl ", "")
        .replacen('<', "", usize::from(name.starts_with('<')));
    for letter in inner.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= i32::from(depth > 0),
            _ if depth == 0 => flat.push(letter),
            _ => {}
        }
    }
    let parts: Vec<&str> = flat.split(" as ").collect();
    let last = |path: &str, count: usize| {
        let words: Vec<&str> = path.split("::").collect();
        words[words.len().saturating_sub(count)..].join("::")
    };
    match parts[..] {
        [component, method] => format!("{} as {}", last(component, 1), last(method, 2)),
        _ => last(&flat, 2),
    }
}

#[test]
fn messages_leave_no_function() {
    // Else the stack wouldn't be in this program.
    std::hint::black_box([
        Stack::poll as *const (),
        Stack::tcp_request as *const (),
        Stack::udp_request as *const (),
    ]);
    let Some(functions) = functions() else {
        println!("SKIP: there is no nm to look at functions with; install binutils");
        return;
    };
    let is_there = |name: &&&str| functions.iter().any(|function| function == **name);
    let missing: Vec<_> = SENDERS.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "renamed? {missing:?} in {functions:#?}");
    let left: Vec<_> = MESSAGES.iter().filter(is_there).collect();
    assert!(left.is_empty(), "not inlined: {left:?}");
}
