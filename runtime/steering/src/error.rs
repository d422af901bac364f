use std::io;

/// What can go wrong when the kernel is to steer packets.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// The kernel refuses the programs or their maps for want of privileges.
    #[error(
        "the kernel refuses to load Skink's steering program ({what}): the process that opens a NIC \
         needs CAP_BPF and CAP_NET_ADMIN (or root), and CAP_SYS_RESOURCE or a higher RLIMIT_MEMLOCK \
         on kernels before 5.11; use `setcap cap_bpf,cap_net_admin,cap_net_raw+ep` on the skink \
         program, or a TAP, which needs none of it"
    )]
    Privileges {
        /// What was refused.
        what: String,
    },
    /// The kernel doesn't take a program or map for another reason.
    #[error(
        "the kernel doesn't take Skink's steering program ({what}): it needs Linux 5.18 or later with \
         CONFIG_BPF_SYSCALL; use a TAP, or one owner for the interface"
    )]
    Load {
        /// What was refused, and the kernel's words.
        what: String,
    },
    /// The program can't be put in front of an interface.
    #[error(
        "can't put the steering program in front of interface {interface}: {what}; see with `ip link \
         show {interface}` whether another XDP program is there already (take it off with `ip link \
         set {interface} xdp off`), or use the packet socket back end"
    )]
    Attach {
        /// Name of the interface.
        interface: String,
        /// The kernel's words.
        what: String,
    },
    /// What is Skink's can't be kept from the kernel's own stack.
    #[error(
        "can't keep packets to Skink's addresses on {interface} from the kernel's own stack: {what} (needs Linux 6.6, \
         CAP_BPF and CAP_NET_ADMIN)"
    )]
    Ingress {
        /// Name of the interface.
        interface: String,
        /// The kernel's words.
        what: String,
    },
    /// The program can't be taken off an interface.
    #[error("can't take the steering program off its interface: {what}")]
    Detach {
        /// The kernel's words.
        what: String,
    },
    /// A map can't be changed.
    #[error("can't change the steering map `{map}`: {what}")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// The kernel's words.
        what: String,
    },
    /// A map can't be mapped into memory.
    #[error("can't map the steering map `{map}` into memory: {source}")]
    Memory {
        /// Name of the map.
        map: &'static str,
        /// The kernel's words.
        source: io::Error,
    },
    /// The queue's number is too high.
    #[error("queue {queue} can't be steered to: only the first 256 queues of a NIC can")]
    Queue {
        /// Its number.
        queue: u32,
    },
}
