use skink_memory::CounterBlock;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

macro_rules! counters {
    ($($component:literal { $($name:ident $label:literal $help:literal;)* })*) => {
        /// Everything that is counted, in the order in which it is stored. The first part of a
        /// label is the component; `drop.` marks a packet dropped, and says why.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Counter {
            $($(#[doc = $help] $name,)*)*
        }

        impl Counter {
            /// All counters.
            pub const ALL: &'static [Counter] = &[$($(Counter::$name,)*)*];

            /// A stable name such as `ip.drop.bad_header`.
            pub const fn label(self) -> &'static str {
                match self { $($(Counter::$name => concat!($component, ".", $label),)*)* }
            }

            /// What it counts, in a sentence.
            pub const fn help(self) -> &'static str {
                match self { $($(Counter::$name => $help,)*)* }
            }
        }
    };
}

counters! {
    "link" {
        LinkFramesIn "frames_in" "Frames received.";
        LinkBytesIn "bytes_in" "Bytes received, from the Ethernet header on.";
        LinkFramesOut "frames_out" "Frames handed to the NIC (before it cuts them).";
        LinkBytesOut "bytes_out" "Bytes handed to the NIC.";
        LinkCut "segments_cut" "Frames made by cutting large segments in software.";
        LinkFull "output_full" "Times the NIC had no room for a frame; it was kept and sent later.";
        LinkBeside "frames_beside" "Frames that came by the packet socket beside AF_XDP queues: from another owner's queue, or for every owner (ARP and the like).";
        LinkOvertook "frames_overtook" "Small frames that were taken before large ones of other flows which had come first.";
        LinkDropShort "drop.too_short" "Received frames shorter than an Ethernet header.";
        LinkDropForeign "drop.foreign" "Received frames addressed to another station.";
        LinkDropSpoofed "drop.spoofed_source" "Outbound frames with a source that isn't ours.";
        LinkDropOversize "drop.oversize" "Outbound frames larger than the link takes.";
        LinkDropMalformed "drop.malformed" "Outbound frames whose headers make no sense.";
        LinkDropNic "drop.nic" "Frames that the kernel or the NIC dropped before Skink saw them.";
        LinkDropSend "drop.send" "Outbound frames that the kernel refused for good.";
    }
    "ip" {
        IpIn "packets_in" "Packets received for an address of ours.";
        IpOut "packets_out" "Packets sent.";
        IpArpIn "arp_in" "ARP packets received.";
        IpArpOut "arp_out" "ARP packets sent.";
        IpNdpIn "ndp_in" "Neighbour discovery messages received.";
        IpNdpOut "ndp_out" "Neighbour discovery messages sent.";
        IpIcmpIn "icmp_in" "ICMP and ICMPv6 messages received (without neighbour discovery).";
        IpIcmpOut "icmp_out" "ICMP and ICMPv6 messages sent (without neighbour discovery).";
        IpEchoAnswered "echo_answered" "Echo requests answered.";
        IpFragmentsIn "fragments_in" "Fragments received.";
        IpReassembled "reassembled" "Packets put together from fragments.";
        IpFragmentsOut "fragments_out" "Fragments sent.";
        IpLooped "looped_back" "Packets sent to an address of our own.";
        IpDropEtherType "drop.ether_type" "Frames of a protocol that isn't spoken.";
        IpDropMalformed "drop.malformed" "Packets whose IP header is broken.";
        IpDropChecksum "drop.bad_checksum" "Packets with a wrong IP or ICMP checksum.";
        IpDropNotOurs "drop.not_ours" "Packets for an address that isn't ours.";
        IpDropBadSource "drop.bad_source" "Packets from an impossible source (broadcast, multicast, loopback, ours).";
        IpDropProtocol "drop.protocol" "Packets of a transport protocol that isn't spoken.";
        IpDropArp "drop.arp" "ARP packets that are broken or contradict us.";
        IpDropNdp "drop.ndp" "Neighbour discovery messages that are broken or not from the link.";
        IpDropIcmp "drop.icmp" "ICMP messages that are broken or about nothing of ours.";
        IpDropFragment "drop.fragment" "Fragments that are broken or overlap others.";
        IpDropReassemblyFull "drop.reassembly_full" "Fragments beyond the memory set aside for them.";
        IpDropReassemblyTimeout "drop.reassembly_timeout" "Fragments whose companions didn't arrive in time.";
        IpDropNoRoute "drop.no_route" "Packets to send without a route.";
        IpDropUnresolved "drop.unresolved" "Packets whose neighbour didn't answer.";
        IpDropQueueFull "drop.neighbour_queue_full" "Packets beyond a neighbour's waiting queue.";
        IpDropTooBig "drop.too_big" "Packets that may not be fragmented and don't fit the path.";
        IpDropRateLimited "drop.icmp_rate_limited" "ICMP errors not sent, for their rate.";
        IpDropOutput "drop.output_full" "ARP, NDP and ICMP messages of our own that the link had no room for.";
        IpConflicts "address_conflicts" "Times another station claimed an address of ours.";
        IpDropMartian "drop.extension" "IPv6 packets with extension headers that aren't understood.";
    }
    "tcp" {
        TcpSegmentsIn "segments_in" "Segments received.";
        TcpSegmentsOut "segments_out" "Segments sent (a large one that is cut later counts once).";
        TcpBytesIn "bytes_in" "Payload bytes received in order.";
        TcpBytesOut "bytes_out" "Payload bytes sent for the first time.";
        TcpActiveOpens "active_opens" "Connections begun here.";
        TcpPassiveOpens "passive_opens" "Connections begun by a peer.";
        TcpEstablished "established" "Connections that became established.";
        TcpClosed "closed" "Connections that ended.";
        TcpFailed "failed" "Handshakes that failed.";
        TcpResetsIn "resets_in" "Resets received and accepted.";
        TcpResetsOut "resets_out" "Resets sent.";
        TcpRetransmits "retransmits" "Segments sent again.";
        TcpRetransmitTimeouts "retransmit_timeouts" "Retransmission timeouts (RFC 6298).";
        TcpFastRecoveries "fast_recoveries" "Fast recoveries entered (RFC 6675).";
        TcpSpuriousTimeouts "spurious_timeouts" "Timeouts found to be needless.";
        TcpSpuriousRecoveries "spurious_recoveries" "Fast recoveries found to be needless: segments came in another order.";
        TcpDuplicateAcks "duplicate_acks" "Duplicate acknowledgements received.";
        TcpOutOfOrder "out_of_order" "Segments received ahead of a gap and kept.";
        TcpCrowded "crowded" "Times a connection was offered less since its data had waited for long before `tcp` got to it.";
        TcpMemoryScarce "memory_scarce" "Times that what is in receive rings (and in send rings, without `skink up`) took more memory than it may.";
        TcpZeroWindowProbes "zero_window_probes" "Probes of a closed window.";
        TcpKeepAliveProbes "keepalive_probes" "Keepalive probes sent.";
        TcpDelayedAcks "delayed_acks" "Acknowledgements that the delay timer sent.";
        TcpTimeWaitReused "time_wait_reused" "TIME-WAIT connections given up for a new one.";
        TcpDropMalformed "drop.malformed" "Segments whose header is broken.";
        TcpDropChecksum "drop.bad_checksum" "Segments with a wrong checksum.";
        TcpDropNoSocket "drop.no_socket" "Segments for no socket; answered with a reset.";
        TcpDropMisled "drop.misled" "Segments of unknown flows on ports that others use too; who has such a flow gets it when the peer sends again.";
        TcpDropMoved "drop.moved" "Connection requests that came while others listen, or are about to, who get them when the peer asks again; segments of connections that were handed over.";
        TcpDropRejected "drop.rejected" "Segments of connections that stand, which the filter refused all the same; not answered.";
        TcpDropLost "drop.lost" "Segments of connections that there are, but that their ends didn't lead to, and acknowledgements of those that a predecessor may have finished with; not answered.";
        TcpDropListenOverflow "drop.listen_overflow" "Handshakes refused since the accept queue was full.";
        TcpDropHalfOpen "drop.half_open" "Handshakes given up, and requests dropped, since too many were under way.";
        TcpDropNoMemory "drop.no_memory" "Handshakes refused since no socket slot was free.";
        TcpDropOutOfWindow "drop.out_of_window" "Segments wholly outside the window.";
        TcpDropDuplicate "drop.duplicate" "Segments that held nothing new.";
        TcpDropPaws "drop.paws" "Segments with an old timestamp (RFC 7323 5).";
        TcpDropBadAck "drop.bad_ack" "Segments that acknowledge what was never sent.";
        TcpDropBadReset "drop.bad_reset" "Resets with a wrong sequence number.";
        TcpDropNoBuffer "drop.no_buffer" "Segments beyond the receive ring or the gap list.";
        TcpDropScarce "drop.scarce" "Segments that there was no memory for, of a program that has more than its share; they come again.";
        TcpDropClosed "drop.closed" "Data for a connection whose program is gone, or has shut both directions; answered with a reset.";
        TcpDropBadFlags "drop.bad_flags" "Segments whose flags make no sense in the state.";
        TcpAdopted "adopted" "Sockets taken over from a predecessor.";
        TcpSentOn "sent_on" "Connection requests that came to who listens no longer, and were brought to a process that does.";
        TcpMoved "moved" "Connections that nobody had accepted and another program's listener got, as theirs was closed or stalled.";
        TcpStalled "stalled" "Listeners of several on one end whose program accepted nothing for a quarter of a second, though something waited.";
        TcpMended "mended" "Numbers on record that made no sense in an adoption, and that the rings and the peer were asked for instead.";
        TcpRecordKind "record.bad_kind" "Sockets given up in an adoption: the record isn't of a kind or state that there is.";
        TcpRecordChanged "record.changed" "Sockets given up in an adoption: what never changes had changed.";
        TcpRecordEnds "record.bad_ends" "Sockets given up in an adoption: addresses or ports make no sense here, or are another socket's.";
        TcpRecordNumbers "record.bad_numbers" "Sockets given up in an adoption: sequence numbers don't fit each other, or the rings.";
        TcpRecordRings "record.bad_rings" "Sockets given up in an adoption: a ring holds more than it can.";
        TcpRecordListener "record.no_listener" "Sockets given up in an adoption: nobody listens where they wait.";
        TcpForgotten "record.forgotten" "Connections reset after a restart of tcp, as a stack without memory of them does.";
        TcpFinAnswered "fin_answered" "FINs of connections that a predecessor had finished with, acknowledged.";
        TcpDropBadError "drop.bad_icmp" "ICMP errors about segments that aren't on their way.";
    }
    "udp" {
        UdpIn "datagrams_in" "Datagrams delivered.";
        UdpOut "datagrams_out" "Datagrams sent.";
        UdpDropMalformed "drop.malformed" "Datagrams whose header is broken.";
        UdpDropChecksum "drop.bad_checksum" "Datagrams with a wrong checksum.";
        UdpDropNoSocket "drop.no_socket" "Datagrams for no socket; answered with an ICMP error.";
        UdpDropBufferFull "drop.buffer_full" "Datagrams beyond the receive ring.";
        UdpDropBadRequest "drop.bad_request" "Outbound datagrams that made no sense.";
        UdpAdopted "adopted" "Sockets taken over from a predecessor.";
        UdpRecordBad "record.bad" "Sockets given up in an adoption: their records make no sense.";
        UdpDropNoRoute "drop.no_route" "Outbound datagrams without a route.";
    }
    "filter" {
        FilterPassed "passed" "Packets that the filter let pass.";
        FilterReturned "returned" "Packets that the filter blocked, and whose sender is told.";
        FilterStatesMade "states_made" "Flows that the filter began to follow.";
        FilterStatesExpired "states_expired" "Flows that the filter forgot after their time.";
        FilterStatesEvicted "states_evicted" "Flows that the filter gave up for newer ones.";
        FilterDropBlocked "drop.blocked" "Packets that a rule of the filter blocked.";
        FilterDropFull "drop.table_full" "First packets of flows beyond the filter's table.";
        FilterDropMalformed "drop.malformed" "Packets whose headers the filter couldn't read.";
    }
    "sockets" {
        SocketsPrograms "programs" "Programs that attached to the stack.";
        SocketsRequests "requests" "Requests of programs that were served.";
        SocketsCalls "calls" "Those of them that were for syscall.";
        SocketsAnswers "answers" "Requests that were answered.";
        SocketsNotices "notices" "Events and connections that programs were told of.";
        SocketsRings "rings" "Times the stack was woken by a program.";
        SocketsSleeps "sleeps" "Times the stack slept.";
        SocketsFull "notices_full" "Times a program had no room for a notice; it was told later.";
        SocketsSpoilt "spoilt" "Programs that spoilt their channel and were detached.";
        SocketsDropMalformed "drop.malformed" "Requests that made no sense.";
        SocketsDropForeign "drop.foreign" "Requests about a socket that isn't the program's.";
    }
    "lanes" {
        LanesDropMalformed "drop.malformed" "Messages of other components that made no sense.";
        LanesDropForeign "drop.foreign" "Answers of a component that was restarted since, or to a predecessor of this one.";
        LanesDropUnasked "drop.unasked" "Answers to nothing that was asked.";
        LanesDropStale "drop.stale" "Packets whose bytes weren't where a message said any more.";
        LanesDropFull "drop.full" "Packets for which there was no room, in a queue or in memory.";
    }
    "app" {
        AppSockets "sockets" "Sockets opened on Skink.";
        AppFallbacks "fallbacks" "Sockets that went to the kernel.";
        AppCalls "calls" "Calls that send or receive on Skink's sockets.";
        AppOtherCalls "other_calls" "Other calls about Skink's sockets: that make, name, set, share or end them.";
        AppAsked "asked" "Messages to syscall, for calls that a program doesn't resolve by itself.";
        AppBlocked "blocked" "Socket calls that had to wait.";
        AppFlowSleeps "flow_sleeps" "Those that waited where what is for their own connection alone wakes them.";
        AppHelperRuns "helper_runs" "Times the helper thread drove the stack.";
        AppHeldTooLong "held_too_long" "Times the helper thread sent what a program had left to wait.";
        AppBusy "busy" "Times a program, or a process with the NIC, had so much to do that the NIC's interrupts were put off.";
        AppSmall "small" "Times it sent so many small packets that segmentation by the NIC was put off, if it is a veth.";
        AppBulk "bulk" "Times it received so much in bulk that AF_XDP stepped aside, if the NIC is a veth.";
    }
}

/// The counters of one stack, in memory that tools can read.
#[derive(Clone)]
pub struct Counters(CounterBlock);

impl Counters {
    /// All zero.
    pub fn create() -> io::Result<Counters> {
        CounterBlock::create(Counter::ALL.len()).map(Counters)
    }

    /// Counters that another process made for this one to count with.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(fd: OwnedFd) -> io::Result<Counters> {
        CounterBlock::open(fd).map(Counters)
    }

    /// Another process's counters, for reading.
    pub fn open_read_only(fd: OwnedFd) -> io::Result<Counters> {
        CounterBlock::open_read_only(fd).map(Counters)
    }

    /// The memfd, to be handed to a reader.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Counts `amount` more.
    #[inline]
    pub fn add(&self, counter: Counter, amount: u64) {
        self.0.add(counter as usize, amount);
    }

    /// Counts one more.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// The value now.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize)
    }
}
