use crate::interface::Interface;
use crate::spec::SpecError;
use skink_steering::SteeringError;
use std::io;

/// What a NIC couldn't be opened for want of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Denial {
    /// `CAP_NET_RAW`.
    PacketSocket,
    /// `CAP_NET_ADMIN`, over the network namespace.
    TapInterface,
    /// Access to `/dev/net/tun`.
    TunDevice,
}

impl Denial {
    fn advice(self) -> &'static str {
        match self {
            Denial::PacketSocket => {
                "opening a packet socket needs CAP_NET_RAW: run as root, grant it with \
                 `setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM`, or use tap:NAME inside \
                 `unshare -Urn`, which needs no root"
            }
            Denial::TapInterface => {
                "making a TAP interface needs CAP_NET_ADMIN over the network namespace: run as \
                 root, grant it with `setcap cap_net_admin+ep PROGRAM`, or run inside \
                 `unshare -Urn`, which needs no root"
            }
            Denial::TunDevice => {
                "/dev/net/tun can't be opened: run as root, or let this user in with \
                 `chmod 666 /dev/net/tun` (many distributions do)"
            }
        }
    }
}

/// Why a NIC couldn't be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is none.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The kernel can't steer.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// There is no such interface.
    #[error("there is no interface {name} here; there are: {present}")]
    NoInterface {
        /// As asked for.
        name: String,
        /// Names of those there are, with commas.
        present: String,
    },
    /// The interface isn't an Ethernet.
    #[error("{name} isn't an Ethernet interface, and Skink speaks nothing else; use another one")]
    NotEthernet {
        /// As asked for.
        name: String,
    },
    /// The interface is switched off.
    #[error("interface {name} is down: bring it up with `ip link set {name} up`")]
    Down {
        /// As asked for.
        name: String,
    },
    /// A privilege is missing.
    #[error("{}", .0.advice())]
    Denied(Denial),
    /// The kernel has no TAP driver, or the container no device.
    #[error(
        "there is no /dev/net/tun: load the driver with `modprobe tun`, or make the device with \
         `mknod /dev/net/tun c 10 200` (in a container: hand it in, such as with \
         `--device /dev/net/tun`)"
    )]
    NoTunDevice,
    /// The interface exists and isn't a TAP that can be used.
    #[error(
        "{name} exists, but isn't a free multi-queue TAP: choose another name, or make it with \
         `ip tuntap add dev {name} mode tap multi_queue`"
    )]
    TapTaken {
        /// As asked for.
        name: String,
    },
    /// This NIC has as many owners as it can have.
    #[error("the NIC has its {owners} owners already; stop a program that uses it")]
    NoPlace {
        /// How many it can have.
        owners: u8,
    },
    /// The kernel lacks something, or this build does.
    #[error("{what} isn't available here: {advice}")]
    Unavailable {
        /// What.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The kernel refused for another reason.
    #[error("{doing} {name} failed: {source}")]
    System {
        /// In the form of "opening".
        doing: &'static str,
        /// Of the interface.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl OpenError {
    /// For `map_err`: the error of a step.
    pub(crate) fn doing(
        doing: &'static str,
        name: &str,
    ) -> impl Fn(io::Error) -> OpenError + use<> {
        let name = name.to_owned();
        move |source| OpenError::System {
            doing,
            name: name.clone(),
            source,
        }
    }

    /// That `name` isn't among `all` there are.
    pub fn no_interface(name: &str, all: &[Interface]) -> OpenError {
        let names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
        OpenError::NoInterface {
            name: name.to_owned(),
            present: names.join(", "),
        }
    }
}
