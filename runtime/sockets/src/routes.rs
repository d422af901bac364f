use crate::ServedBy;
use serde::{Deserialize, Serialize};

/// Most channels of one program: one for each part of the stack that serves programs.
pub const MOST_CHANNELS: usize = ServedBy::ALL.len();

/// Which of a program's channels, from 0 on, leads to which part of the stack. Each leads to one at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "[u8; 3]", into = "[u8; 3]")]
pub struct Routes([u8; MOST_CHANNELS]);

impl Routes {
    /// One channel for all: the parts share a process.
    pub const SINGLE: Routes = Routes([0; MOST_CHANNELS]);

    /// The channels of `syscall`, `tcp` and `udp`. `None` if one of those from 0 on would lead nowhere.
    pub fn new(channels: [u8; MOST_CHANNELS]) -> Option<Routes> {
        let routes = Routes(channels);
        let count = u8::try_from(routes.channels()).ok()?;
        (0..count)
            .all(|channel| channels.contains(&channel))
            .then_some(routes)
    }

    /// One channel for each process, of those that host `syscall`, `tcp` and `udp`, in this order.
    pub fn to_hosts<T: PartialEq>(hosts: &[T; MOST_CHANNELS]) -> Routes {
        let mut routes = Routes::SINGLE;
        let mut count = 0;
        for (at, host) in hosts.iter().enumerate() {
            let earlier = hosts.iter().position(|other| other == host).unwrap_or(at);
            let channel = match routes.0.get(earlier) {
                Some(channel) if earlier < at => *channel,
                _ => {
                    count += 1;
                    count - 1
                }
            };
            if let Some(route) = routes.0.get_mut(at) {
                *route = channel;
            }
        }
        routes
    }

    /// How many channels there are: 1 to [`MOST_CHANNELS`].
    pub fn channels(&self) -> usize {
        self.0.iter().max().map_or(0, |last| usize::from(*last)) + 1
    }

    /// The channel that leads to a part.
    #[inline]
    pub fn channel(&self, part: ServedBy) -> usize {
        let [syscall, tcp, udp] = self.0;
        usize::from(match part {
            ServedBy::Syscall => syscall,
            ServedBy::Tcp => tcp,
            ServedBy::Udp => udp,
        })
    }

    /// The parts that a channel leads to.
    pub fn parts(&self, channel: usize) -> impl Iterator<Item = ServedBy> {
        let routes = *self;
        let all = ServedBy::ALL.into_iter();
        all.filter(move |part| routes.channel(*part) == channel)
    }
}

impl From<Routes> for [u8; MOST_CHANNELS] {
    fn from(routes: Routes) -> [u8; MOST_CHANNELS] {
        routes.0
    }
}

impl TryFrom<[u8; MOST_CHANNELS]> for Routes {
    type Error = &'static str;

    fn try_from(channels: [u8; MOST_CHANNELS]) -> Result<Routes, &'static str> {
        Routes::new(channels).ok_or("not the routes to the parts of a stack")
    }
}

#[cfg(test)]
mod tests;
