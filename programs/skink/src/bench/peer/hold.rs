//! Connections on which nothing happens.

use super::ask::SILENCE;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::ops::Range;
use std::time::Duration;

/// Connections from one address: well below the number of its ports, so that free ones are found quickly.
pub const PER_ADDRESS: u32 = 20_000;
/// The last byte of the first address that connections come from, and of the last one.
const FIRST: u8 = 100;
const LAST: u8 = 249;
/// The most connections.
pub const MOST: u32 = PER_ADDRESS * (LAST - FIRST + 1) as u32;
/// Threads that connect.
const THREADS: usize = 16;

/// The addresses, in the network of `server`, from which so many connections are made.
pub fn addresses(server: Ipv4Addr, connections: u32) -> impl Iterator<Item = Ipv4Addr> {
    let [a, b, c, _] = server.octets();
    let count = connections.div_ceil(PER_ADDRESS);
    let last = (FIRST..=LAST).take(count as usize);
    last.map(move |last| Ipv4Addr::new(a, b, c, last))
}

/// Makes connections of these numbers, says so, and keeps them until this process is ended.
pub fn hold(server: SocketAddr, numbers: Range<u32>) -> io::Result<()> {
    let IpAddr::V4(address) = server.ip() else {
        return Err(io::Error::other("the server's address isn't of IPv4"));
    };
    let sources: Vec<Ipv4Addr> = addresses(address, numbers.end).collect();
    let threads = (0..THREADS).map(|thread| {
        let (sources, numbers) = (sources.clone(), numbers.clone());
        std::thread::spawn(move || {
            let own = numbers.skip(thread).step_by(THREADS);
            let source = |number: u32| sources.get((number / PER_ADDRESS) as usize).copied();
            let streams = own.map(|number| connect(source(number), server));
            streams.collect::<io::Result<Vec<TcpStream>>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut held = Vec::new();
    for thread in threads {
        let streams = thread.join();
        held.push(streams.map_err(|_| io::Error::other("a thread panicked"))??);
    }
    println!("held {}", held.iter().map(Vec::len).sum::<usize>());
    // Until it is ended.
    loop {
        std::thread::park();
    }
}

/// What is printed once so many are there.
pub fn words(connections: u32) -> String {
    format!("held {connections}\n")
}

fn connect(source: Option<Ipv4Addr>, server: SocketAddr) -> io::Result<TcpStream> {
    let source = source.ok_or_else(|| io::Error::other("there are too few addresses"))?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    let timeout = Some(SILENCE);
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Send,
        timeout,
    )?;
    // The next round needs their ports, and so many that wait for an end would be too many for the kernel: these are reset.
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    rustix::net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    rustix::net::connect(&socket, &server)?;
    Ok(TcpStream::from(socket))
}
