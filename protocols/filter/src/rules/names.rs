//! Names for numbers. Independent of `/etc/services`: a file of rules means the same everywhere.

use crate::summary::Family;
use skink_wire::protocol;

/// Services by name (IANA "Service Name and Transport Protocol Port Number Registry").
const SERVICES: [(&str, u16); 44] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("www", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("auth", 113),
    ("nntp", 119),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap", 143),
    ("snmp", 161),
    ("snmptrap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("microsoft-ds", 445),
    ("submissions", 465),
    ("isakmp", 500),
    ("syslog", 514),
    ("printer", 515),
    ("dhcpv6-client", 546),
    ("dhcpv6-server", 547),
    ("submission", 587),
    ("ldaps", 636),
    ("domain-s", 853),
    ("imaps", 993),
    ("pop3s", 995),
    ("nfs", 2049),
    ("mysql", 3306),
    ("postgresql", 5432),
    ("mdns", 5353),
    ("redis", 6379),
    ("http-alt", 8080),
];

/// The port of a service.
pub(super) fn service(name: &str) -> Option<u16> {
    let mut services = SERVICES.iter();
    services
        .find(|(known, _)| *known == name)
        .map(|(_, port)| *port)
}

/// Transport protocols by name.
const PROTOCOLS: [(&str, u8); 5] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("icmp", protocol::ICMP),
    ("icmp6", protocol::ICMPV6),
    ("ipv6-icmp", protocol::ICMPV6),
];

/// The number of a protocol.
pub(super) fn protocol(name: &str) -> Option<u8> {
    let mut protocols = PROTOCOLS.iter();
    protocols
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

/// The name of a protocol, the first of several.
pub(super) fn protocol_name(number: u8) -> Option<&'static str> {
    let mut protocols = PROTOCOLS.iter();
    protocols
        .find(|(_, known)| *known == number)
        .map(|(name, _)| *name)
}

/// ICMP types (IANA "ICMP Type Numbers"), by pf's names.
const ICMP_TYPES: [(&str, u8); 15] = [
    ("echorep", 0),
    ("unreach", 3),
    ("squench", 4),
    ("redir", 5),
    ("echoreq", 8),
    ("routeradv", 9),
    ("routersol", 10),
    ("timex", 11),
    ("paramprob", 12),
    ("timereq", 13),
    ("timerep", 14),
    ("inforeq", 15),
    ("inforep", 16),
    ("maskreq", 17),
    ("maskrep", 18),
];

/// ICMPv6 types (IANA "ICMPv6 type Numbers"), by pf's names.
const ICMP6_TYPES: [(&str, u8); 17] = [
    ("unreach", 1),
    ("toobig", 2),
    ("timex", 3),
    ("paramprob", 4),
    ("echoreq", 128),
    ("echorep", 129),
    ("groupqry", 130),
    ("listqry", 130),
    ("grouprep", 131),
    ("listenrep", 131),
    ("groupterm", 132),
    ("listendone", 132),
    ("routersol", 133),
    ("routeradv", 134),
    ("neighbrsol", 135),
    ("neighbradv", 136),
    ("redir", 137),
];

const fn icmp_types(family: Family) -> &'static [(&'static str, u8)] {
    match family {
        Family::V4 => &ICMP_TYPES,
        Family::V6 => &ICMP6_TYPES,
    }
}

/// The number of an ICMP type.
pub(super) fn icmp_type(family: Family, name: &str) -> Option<u8> {
    let mut types = icmp_types(family).iter();
    types
        .find(|(known, _)| *known == name)
        .map(|(_, kind)| *kind)
}

/// The name of an ICMP type, the first of several.
pub(super) fn icmp_type_name(family: Family, kind: u8) -> Option<&'static str> {
    let mut types = icmp_types(family).iter();
    types
        .find(|(_, known)| *known == kind)
        .map(|(name, _)| *name)
}

/// Codes by name: IP version, type, name, code.
const ICMP_CODES: [(Family, u8, &str, u8); 17] = [
    (Family::V4, 3, "net-unr", 0),
    (Family::V4, 3, "host-unr", 1),
    (Family::V4, 3, "proto-unr", 2),
    (Family::V4, 3, "port-unr", 3),
    (Family::V4, 3, "needfrag", 4),
    (Family::V4, 3, "srcfail", 5),
    (Family::V4, 3, "net-prohib", 9),
    (Family::V4, 3, "host-prohib", 10),
    (Family::V4, 3, "filter-prohib", 13),
    (Family::V4, 11, "transit", 0),
    (Family::V4, 11, "reassemb", 1),
    (Family::V6, 1, "noroute-unr", 0),
    (Family::V6, 1, "admin-unr", 1),
    (Family::V6, 1, "addr-unr", 3),
    (Family::V6, 1, "port-unr", 4),
    (Family::V6, 3, "transit", 0),
    (Family::V6, 3, "reassemb", 1),
];

/// The number of an ICMP code of a type.
pub(super) fn icmp_code(family: Family, kind: u8, name: &str) -> Option<u8> {
    let mut codes = ICMP_CODES.iter();
    codes
        .find(|code| (code.0, code.1, code.2) == (family, kind, name))
        .map(|code| code.3)
}

/// TCP control bits by pf's letters.
const FLAGS: [(char, skink_wire::tcp::Flags); 8] = {
    use skink_wire::tcp::Flags;
    [
        ('F', Flags::FIN),
        ('S', Flags::SYN),
        ('R', Flags::RST),
        ('P', Flags::PSH),
        ('A', Flags::ACK),
        ('U', Flags::URG),
        ('E', Flags::ECE),
        ('W', Flags::CWR),
    ]
};

/// The bits that letters stand for.
pub(super) fn flags(letters: &str) -> Option<skink_wire::tcp::Flags> {
    let mut flags = skink_wire::tcp::Flags::EMPTY;
    for letter in letters.chars() {
        let (_, flag) = FLAGS.iter().find(|(known, _)| *known == letter)?;
        flags |= *flag;
    }
    Some(flags)
}

/// The letters of bits.
pub(super) fn flag_letters(flags: skink_wire::tcp::Flags) -> String {
    let set = FLAGS.iter().filter(|(_, flag)| flags.contains(*flag));
    set.map(|(letter, _)| *letter).collect()
}
