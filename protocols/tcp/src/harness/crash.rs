//! What a successor finds.

use super::{Net, Out, Sent, new_region};
use crate::instance::{Tcp, TcpConfig};
use skink_memory::{Adopted, Mapping, Region, SocketTable};
use skink_messages::Counters;
use skink_wire::tcp::Header;

/// Copies one region again and again.
pub(crate) struct Freezer {
    files: [Mapping; 3],
    region: Region,
    pub frozen: Vec<Frozen>,
}

/// The memory of a region at one moment.
pub(crate) struct Frozen {
    files: [Vec<u64>; 3],
    region: Region,
    /// The last segment that had left.
    pub last: Option<(Header, u32)>,
}

fn map(region: &Region) -> [Mapping; 3] {
    region.files().map(|fd| {
        let fd = fd.try_clone_to_owned().expect("a descriptor");
        Mapping::from_fd(fd).expect("the region's memory")
    })
}

fn copy(mapping: &Mapping) -> Vec<u64> {
    let words = mapping.words().iter();
    words
        .map(|word| word.load(std::sync::atomic::Ordering::Relaxed))
        .collect()
}

fn paste(mapping: &Mapping, words: &[u64]) {
    for (to, word) in mapping.words().iter().zip(words) {
        to.store(*word, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Freezer {
    pub fn new(region: &Region) -> Freezer {
        Freezer {
            files: map(region),
            region: region.clone(),
            frozen: Vec::new(),
        }
    }

    pub fn records(&self) -> &Mapping {
        let [records, _, _] = &self.files;
        records
    }

    /// The region as it is now.
    pub fn freeze_once(mut self) -> Frozen {
        self.freeze(None);
        self.frozen.remove(0)
    }

    pub fn freeze(&mut self, last: Option<&Sent>) {
        self.frozen.push(Frozen {
            files: self.files.each_ref().map(copy),
            region: self.region.clone(),
            last: last.map(|sent| (sent.header, sent.payload.len() as u32)),
        });
    }
}

impl Frozen {
    /// A copy of that region.
    pub fn region(&self) -> Region {
        let config = self.region.config();
        let region = new_region(config.sockets, config.send_bytes, config.receive_bytes);
        for (mapping, words) in map(&region).iter().zip(&self.files) {
            paste(mapping, words);
        }
        region
    }
}

impl Net {
    /// From now on what a successor would find in region 0 is kept each time that the instance asks
    /// for something.
    pub fn freeze(&mut self) {
        let region = self.tcp.table().region(0).expect("a region").clone();
        self.out.freezer = Some(Freezer::new(&region));
    }

    pub fn take_frozen(&mut self) -> Vec<Frozen> {
        let freezer = self.out.freezer.take();
        freezer.map_or_else(Vec::new, |freezer| freezer.frozen)
    }

    /// The instance dies without a word. A successor adopts all its regions; nothing is polled yet.
    pub fn crash_without_run(&mut self) -> Adopted {
        let table = self.tcp.table().clone();
        let regions = table
            .regions()
            .map(|(index, region)| (index, region.clone()));
        self.crash_with(&regions.collect::<Vec<_>>())
    }

    /// As [`Net::crash_without_run`]; its successor finds these.
    pub fn crash_with(&mut self, regions: &[(u32, Region)]) -> Adopted {
        let mut out = Out::new();
        out.path = self.out.path;
        out.strangers = self.out.strangers;
        self.out = out;
        let config = TcpConfig { seed: 8 };
        let stride = SocketTable::new(self.tcp.table().stride());
        let stateless = self.tcp.stateless;
        self.tcp = Tcp::new(config, stride, self.counters.clone());
        self.tcp.set_stateless(stateless);
        let mut all = Adopted::default();
        for (index, region) in regions {
            let adopted = self
                .tcp
                .adopt_region(self.now, *index, region.clone(), &mut self.out);
            all = all + adopted.expect("a free index");
        }
        all
    }

    /// As [`Net::crash_without_run`], and lets the successor do what is due.
    pub fn crash(&mut self) -> Adopted {
        let adopted = self.crash_without_run();
        self.run();
        adopted
    }

    /// A successor with what was kept; nothing is polled yet.
    pub fn thaw(&self, frozen: &Frozen) -> (Net, Adopted) {
        let mut net = Net::new();
        net.now = self.now;
        net.flows.clone_from(&self.flows);
        net.counters = Counters::create().expect("memory");
        let region = frozen.region();
        let table = SocketTable::new(region.config().sockets);
        let config = TcpConfig { seed: 9 };
        net.tcp = Tcp::new(config, table, net.counters.clone());
        let adopted = net.tcp.adopt_region(net.now, 0, region, &mut net.out);
        (net, adopted.expect("a free index"))
    }
}
