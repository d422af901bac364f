// SPDX-License-Identifier: MIT OR GPL-2.0
//
// Which owner gets an inbound packet. An owner is a process with its own instance of the stack; all
// owners of a NIC have the same IP addresses. The one decision serves four programs:
//
//   skink_xdp      in front of AF_XDP sockets: to the owner's socket, if it is on this queue
//   skink_fanout   for PACKET_FANOUT_EBPF (and TUNSETSTEERINGEBPF): the owner's place in the group
//   skink_steered  a socket filter: packets that go to one owner
//   skink_control  a socket filter: packets that every owner needs
//
// What isn't Skink's is passed to the kernel unchanged. The layout of the maps is repeated in
// src/ports.rs, src/owners.rs, src/flow_rings.rs and src/flows.rs, and the hash in src/flow_rings.rs too.
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define OWNERS 64
#define QUEUES 256
// AF_XDP sockets on a queue: the first is for all frames, the others for flows that a thread waits for.
#define RINGS 32
#define BUCKETS 1024
#define FLOW_BUCKETS 8192
#define FLOW_BASE 16384
#define EXTENSION_HEADERS 6
#define VLAN_ID 0xfff

// Verdicts that aren't an owner.
#define NOT_OURS -1
#define EVERYONE -2

// Protocol numbers that <linux/in.h> lacks.
#define ICMPV6 58
#define HOP_BY_HOP 0
#define ROUTING 43
#define FRAGMENT 44
#define DESTINATION_OPTIONS 60
// A protocol number that no packet has in a flow's key: fragments of one datagram.
#define FRAGMENTS_OF 0x100

struct port {
	__u64 users;     // owners that have a socket on this local port
	__u64 listeners; // owners that new flows may be given to
	__u64 shown;     // listeners that accept only while somebody there sleeps until a flow comes
	__u64 waiting;   // those where somebody does, for one flow
	__u64 reserve;   // listeners that are given flows only if there are no others
	__u64 tells;     // listeners that say when somebody there waits, though they may accept at other times, too
	__u64 serving[2]; // owners with a connection on the port, and with another one; they say when it is over
	// Of TCP, by hash and not by port, from FLOW_BASE on: owners that have a connection on a flow of that hash.
	__u64 flows;
};

// By port. Owners map them and change them with atomic operations; two, so that who has one transport only needn't
// reach the other's.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct port);
} tcp_ports SEC(".maps"), udp_ports SEC(".maps");

struct owners {
	__u64 live;                  // bitmap
	__u64 queued;                // bitmap of those with an AF_XDP socket on some queue
	__u32 queue_owner[QUEUES];   // owner + 1 whose AF_XDP socket is on the queue, or 0
	__u32 fanout_index[OWNERS];  // place in the fan-out group
	__u64 threaded;              // bitmap of those with entries in flow_rings
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct owners);
} owners SEC(".maps");

struct address {
	__u64 word[2]; // network byte order; IPv4 as ::ffff:a.b.c.d
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u32);
} addresses SEC(".maps");

struct flow {
	struct address remote;
	struct address local;
	__be16 remote_port; // of fragments: their identification, in both ports
	__be16 local_port;
	__u32 protocol;
};

struct entry {
	__u32 owner;
	__u32 sequence; // of the segment that opened it last, in network byte order
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct flow);
	__type(value, struct entry);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES * RINGS);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps"); // by queue and ring

// By owner: the ring of each flow, by the flow's hash. Owners map it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, __u8[BUCKETS]);
} flow_rings SEC(".maps");

// The packet from its network header on: either bytes or a socket buffer.
struct packet {
	const char *data;
	const char *end;
	struct __sk_buff *skb;
	__u32 network; // offset of the network header in the socket buffer
	__u16 type; // EtherType, host byte order
};

#define IS_SYN 1      // a TCP segment that opens a flow
#define IS_FRAGMENT 2 // of a larger packet
#define IS_LATER 4    // a fragment without the transport header
#define NO_PORTS 8    // neither TCP nor UDP, or too short to tell

// What a packet to one owner is steered by.
struct parsed {
	struct flow flow;
	__u32 identification; // of a fragment
	__u32 sequence; // of a segment that opens a flow
	__u32 flags;
};

static __always_inline int load(const struct packet *packet, __u32 offset, void *to, __u32 bytes)
{
	if (packet->skb) {
		if (bpf_skb_load_bytes_relative(packet->skb, offset, to, bytes,
						BPF_HDR_START_NET) == 0)
			return 0;
		// That looks at the buffer's head only, where little more than the Ethernet header
		// may be.
		return bpf_skb_load_bytes(packet->skb, packet->network + offset, to, bytes);
	}
	if (offset > 1024)
		return -1;
	const char *at = packet->data + offset;
	if (at + bytes > packet->end)
		return -1;
	__builtin_memcpy(to, at, bytes);
	return 0;
}

static __always_inline __u64 popcount(__u64 bits)
{
	bits -= (bits >> 1) & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + ((bits >> 2) & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (bits * 0x0101010101010101ULL) >> 56;
}

static __always_inline int lowest(__u64 bits)
{
	return popcount((bits & -bits) - 1) & (OWNERS - 1);
}

// The member of a set (not empty) that a hash of 32 bits falls on; evenly.
static __always_inline int pick(__u64 bits, __u64 hash)
{
	__u32 skip = ((hash & 0xffffffff) * popcount(bits)) >> 32;

	for (__u32 i = 0; i < OWNERS; i++) {
		if (i >= skip)
			break;
		bits &= bits - 1;
	}
	return lowest(bits);
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

// Not keyed: whoever knows the owners' number can choose his owner, which gains him nothing.
static __always_inline __u64 hash_of(const struct flow *flow)
{
	__u64 hash = mix(flow->protocol, (__u64)flow->remote_port << 16 | flow->local_port);

	hash = mix(mix(hash, flow->remote.word[0]), flow->remote.word[1]);
	hash = mix(mix(hash, flow->local.word[0]), flow->local.word[1]);
	return mix(hash, 0);
}

// ICMP errors are for whoever sent the packet they are about (RFC 792).
static __always_inline int icmp_is_error(__u8 type)
{
	return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

static __always_inline int parse_transport(const struct packet *packet, __u32 offset,
					   struct parsed *parsed)
{
	__u32 protocol = parsed->flow.protocol;
	__u8 bytes[14];

	if (protocol == IPPROTO_ICMP && packet->type == ETH_P_IP &&
	    !(parsed->flags & IS_FRAGMENT) && load(packet, offset, bytes, 1) == 0 &&
	    icmp_is_error(bytes[0]))
		return EVERYONE;
	parsed->flags |= NO_PORTS;
	if (protocol == IPPROTO_TCP) {
		// A first fragment may hold eight bytes only; then it opens no flow.
		if (load(packet, offset, bytes, 14) == 0) {
			if ((bytes[13] & 0x12) == 0x02) {
				parsed->flags |= IS_SYN;
				__builtin_memcpy(&parsed->sequence, bytes + 4, 4);
			}
		} else if (load(packet, offset, bytes, 4) != 0) {
			return 0;
		}
	} else if (protocol == IPPROTO_UDP) {
		if (load(packet, offset, bytes, 4) != 0)
			return 0;
	} else {
		return 0;
	}
	parsed->flags &= ~NO_PORTS;
	__builtin_memcpy(&parsed->flow.remote_port, bytes, 2);
	__builtin_memcpy(&parsed->flow.local_port, bytes + 2, 2);
	return 0;
}

static __always_inline int parse_ipv4(const struct packet *packet, struct parsed *parsed)
{
	__u32 header[5];
	__u8 *bytes = (__u8 *)header;
	__u32 mapped = bpf_htonl(0xffff);

	if (load(packet, 0, header, sizeof(header)) != 0 || (bytes[0] >> 4) != 4 ||
	    (bytes[0] & 15) < 5)
		return NOT_OURS;
	parsed->flow.remote.word[1] = (__u64)header[3] << 32 | mapped;
	parsed->flow.local.word[1] = (__u64)header[4] << 32 | mapped;
	if (!bpf_map_lookup_elem(&addresses, &parsed->flow.local))
		return NOT_OURS;
	parsed->flow.protocol = bytes[9];

	__u32 fragment = (__u32)bytes[6] << 8 | bytes[7];
	if (fragment & 0x3fff) {
		parsed->flags = IS_FRAGMENT;
		parsed->identification = (__u32)bytes[4] << 8 | bytes[5];
		if (fragment & 0x1fff) {
			parsed->flags |= IS_LATER;
			return 0;
		}
	}
	return parse_transport(packet, (bytes[0] & 15) * 4, parsed);
}

static __always_inline int parse_ipv6(const struct packet *packet, struct parsed *parsed)
{
	__u64 header[5];
	__u8 *bytes = (__u8 *)header;
	__u8 next, extension[8];
	__u32 offset = sizeof(header);
	int ours;

	if (load(packet, 0, header, sizeof(header)) != 0 || (bytes[0] >> 4) != 6)
		return NOT_OURS;
	parsed->flow.remote.word[0] = header[1];
	parsed->flow.remote.word[1] = header[2];
	parsed->flow.local.word[0] = header[3];
	parsed->flow.local.word[1] = header[4];
	ours = bpf_map_lookup_elem(&addresses, &parsed->flow.local) != NULL;
	next = bytes[6];
	for (int i = 0; i < EXTENSION_HEADERS; i++) {
		if (next != HOP_BY_HOP && next != ROUTING && next != DESTINATION_OPTIONS &&
		    next != FRAGMENT)
			break;
		if (load(packet, offset, extension, sizeof(extension)) != 0)
			return NOT_OURS;
		if (next == FRAGMENT) {
			__u32 fragment = (__u32)extension[2] << 8 | extension[3];
			if (fragment & 0xfff9) { // RFC 6946: an atomic fragment isn't one
				parsed->flags = IS_FRAGMENT;
				__builtin_memcpy(&parsed->identification, extension + 4, 4);
			}
			if (fragment & 0xfff8) {
				parsed->flags |= IS_LATER;
				parsed->flow.protocol = extension[0];
				return ours ? 0 : NOT_OURS;
			}
			offset += 8;
		} else {
			offset += 8 + (__u32)extension[1] * 8;
		}
		next = extension[0];
	}
	if (next == ICMPV6 && !(parsed->flags & IS_FRAGMENT) &&
	    load(packet, offset, extension, 1) == 0) {
		// Neighbour discovery goes to multicast addresses too (RFC 4861), and so do
		// queries for who is in which group (RFC 2710, RFC 3810).
		if ((extension[0] >= 133 && extension[0] <= 137) || extension[0] == 130)
			return EVERYONE;
		if (extension[0] < 128 && ours) // errors (RFC 4443)
			return EVERYONE;
	}
	if (!ours)
		return NOT_OURS;
	parsed->flow.protocol = next;
	return parse_transport(packet, offset, parsed);
}

// 0 if the packet is for one owner; what it is steered by is then in `parsed`.
static __always_inline int parse(const struct packet *packet, struct parsed *parsed)
{
	__builtin_memset(parsed, 0, sizeof(*parsed));
	if (packet->type == ETH_P_IP)
		return parse_ipv4(packet, parsed);
	if (packet->type == ETH_P_IPV6)
		return parse_ipv6(packet, parsed);
	return packet->type == ETH_P_ARP ? EVERYONE : NOT_OURS;
}

// Who has its AF_XDP socket on a queue: the owner + 1, or 0. The compiler keeps what it has compared on the
// stack, and reads it again for use; Linux 6.1 (Debian 12) doesn't know then that it was compared, and refuses the
// program. What is masked here is what is used.
static __always_inline __u32 on_queue(const struct owners *table, __u32 queue)
{
	if (queue >= QUEUES)
		return 0;
	asm volatile("%0 &= %1" : "+r"(queue) : "i"(QUEUES - 1));
	return table->queue_owner[queue];
}

// One of several candidates for a flow that isn't in the table: the owner of the queue it came by, so
// that it needn't change queues, or by hash. If some candidate has no queue of its own, only the hash
// gives it its share. The same for a flow's first segment as for a later one
// whose entry was pushed out of the table, unless who waits came first.
static __always_inline int choose(const struct owners *table, const struct flow *flow,
				  __u64 candidates, __u32 queue)
{
	if (flow->protocol == IPPROTO_TCP && !(candidates & ~table->queued)) {
		__u32 owner = on_queue(table, queue) - 1;
		if (owner < OWNERS && (candidates >> owner & 1))
			return owner;
	}
	return pick(candidates, hash_of(flow));
}

// Owners that have a connection on the flow, or on another one of the same hash. Who has it in TIME-WAIT may not count.
static __always_inline __u64 holders_of(const struct flow *flow)
{
	__u32 bucket = FLOW_BASE + hash_of(flow) % FLOW_BUCKETS;
	const struct port *entry = bpf_map_lookup_elem(&tcp_ports, &bucket);

	return entry ? entry->flows : 0;
}

// All ones if a set is empty, else 0. Without a branch: the verifier follows each to the end.
static __always_inline __u64 if_empty(__u64 set)
{
	__u64 some = (set | -set) >> 63;

	asm volatile("" : "+r"(some));
	return some - 1;
}

static __always_inline __u64 or_else(__u64 set, __u64 other)
{
	return set | (other & if_empty(set));
}

// Of the candidates for a flow that opens those that it may be given to: the one queue of a listening socket that processes share, as
// far as their sleep tells (docs/decisions/0025). Who accepts only while it waits gets none otherwise, unless all are like that. Where
// no queue decides, who waits comes before who is busy, as does who never tells; and if nobody waits, who has few connections: of
// processes that accept one in turns each has something to accept then, once its turn has come.
static __always_inline __u64 fit(const struct owners *table, const struct port *port,
				 __u64 candidates)
{
	__u64 waiting = port->waiting;
	__u64 among = or_else(candidates & ~(port->shown & ~waiting), candidates);
	__u64 idle = among & (waiting | ~port->tells) & ~if_empty(among & waiting);
	__u64 few = or_else(among & ~port->serving[0], among & ~port->serving[1]);

	return among & ~table->queued ? or_else(or_else(idle, few), among) : among;
}

static __always_inline int by_ports(const struct owners *table, const struct parsed *parsed,
				    __u64 live, __u32 queue)
{
	const struct flow *flow = &parsed->flow;
	__u32 index = bpf_ntohs(flow->local_port);

	struct port *port;

	if (flow->protocol == IPPROTO_UDP) {
		port = bpf_map_lookup_elem(&udp_ports, &index);
		// Else the compiler makes one call of both, of a map that the verifier doesn't know, and
		// it stays a call.
		asm volatile("" : "+r"(port));
	} else {
		port = bpf_map_lookup_elem(&tcp_ports, &index);
	}
	if (!port)
		return lowest(live);
	__u64 users = port->users & live;
	__u64 listeners = port->listeners & users;
	__u64 ready = listeners & ~port->reserve;
	__u64 candidates = ready ? ready : listeners ? listeners : users;
	// A flow that opens is entered even while one owner is alone or nobody listens: others may join
	// it on the port before it looks at the packet, as when a server starts its next workers, and
	// must not get the flow's later packets.
	int opens = parsed->flags & IS_SYN;

	if (candidates == 0)
		candidates = live & -live; // which answers that nobody is here
	if ((candidates & (candidates - 1)) == 0 && users == candidates && !opens)
		return lowest(candidates);
	__u64 among = candidates;
	struct entry *known = NULL;
	__u32 owner = OWNERS;

	if (flow->protocol == IPPROTO_TCP) {
		known = bpf_map_lookup_elem(&flows, flow);
		if (known && known->owner < OWNERS && (users >> known->owner & 1))
			owner = known->owner;
		if (!opens && owner < OWNERS)
			return owner;
		__u64 holders = holders_of(flow) & users;

		among = opens ? fit(table, port, candidates) : or_else(holders, candidates);
		// A request that is repeated goes where it went, and so does one for a connection that is there. Else who had the
		// flow once may have stopped to listen, or be busy now.
		if (owner < OWNERS && ((holders | among) >> owner & 1 ||
				       (known && known->sequence == parsed->sequence &&
					(candidates >> owner & 1))))
			among = 1ULL << owner;
	}
	owner = choose(table, flow, among, queue);
	if (flow->protocol != IPPROTO_TCP || !opens)
		return owner;

	__u64 bit = 1ULL << (owner & (OWNERS - 1));

	// The next flow is another one's, until it says again that it waits.
	if (port->waiting & bit)
		__sync_fetch_and_and(&port->waiting, ~bit);
	if (known && known->owner == owner) {
		if (known->sequence == parsed->sequence)
			return owner;
		known->sequence = parsed->sequence;
	} else {
		struct entry entry = { .owner = owner, .sequence = parsed->sequence };

		bpf_map_update_elem(&flows, flow, &entry, BPF_ANY);
	}
	// Who has everything for itself needn't be told from others.
	if (candidates & ~bit) {
		__u64 has = !!(port->serving[0] & bit);

		asm volatile("" : "+r"(has));
		__sync_fetch_and_or(&port->serving[has & 1], bit);
	}
	return owner;
}

// The owner for a parsed packet, or NOT_OURS if none lives.
static __always_inline int decide(const struct owners *table, const struct parsed *parsed,
				  __u32 queue)
{
	__u64 live = table->live;
	__u32 owner;

	if (live == 0)
		return NOT_OURS;
	if (!(parsed->flags & IS_FRAGMENT))
		return parsed->flags & NO_PORTS ? lowest(live)
						: by_ports(table, parsed, live, queue);

	// The first fragment goes by its ports, and the others follow it. If one overtakes it, a hash
	// at least keeps those that overtook together.
	struct flow datagram = parsed->flow;
	datagram.protocol |= FRAGMENTS_OF;
	__builtin_memcpy(&datagram.remote_port, &parsed->identification, 4);
	if (parsed->flags & IS_LATER) {
		const struct entry *known = bpf_map_lookup_elem(&flows, &datagram);
		if (known && known->owner < OWNERS && (live >> known->owner & 1))
			return known->owner;
		return pick(live, hash_of(&datagram));
	}
	owner = parsed->flags & NO_PORTS ? lowest(live) : by_ports(table, parsed, live, queue);
	struct entry entry = { .owner = owner };
	bpf_map_update_elem(&flows, &datagram, &entry, BPF_ANY);
	return owner;
}

// Which of the owner's sockets on the queue.
static __always_inline __u32 ring_of(const struct owners *table, const struct parsed *parsed,
				     __u32 owner)
{
	if (owner >= OWNERS || !(table->threaded >> owner & 1) ||
	    parsed->flow.protocol != IPPROTO_TCP || parsed->flags & (IS_FRAGMENT | NO_PORTS))
		return 0;
	const __u8 *rings = bpf_map_lookup_elem(&flow_rings, &owner);
	if (!rings)
		return 0;
	return rings[hash_of(&parsed->flow) % BUCKETS] % RINGS;
}

static __always_inline struct packet of_skb(struct __sk_buff *skb, __u32 network)
{
	// A tagged packet belongs to another interface, unless the tag tells its priority only (802.1p).
	int tagged = skb->vlan_present && skb->vlan_tci & VLAN_ID;
	struct packet packet = {
		.skb = skb,
		.network = network,
		.type = tagged ? 0 : bpf_ntohs(skb->protocol),
	};
	return packet;
}

SEC("xdp.frags")
int skink_xdp(struct xdp_md *context)
{
	const char *data = (const char *)(long)context->data;
	const char *end = (const char *)(long)context->data_end;
	const struct ethhdr *ethernet = (const struct ethhdr *)data;
	__u32 zero = 0, queue = context->rx_queue_index;
	struct parsed parsed;

	if (data + sizeof(*ethernet) > end)
		return XDP_PASS;
	struct packet packet = {
		.data = data + sizeof(*ethernet),
		.end = end,
		.type = bpf_ntohs(ethernet->h_proto),
	};
	const struct owners *table = bpf_map_lookup_elem(&owners, &zero);
	if (!table || parse(&packet, &parsed) != 0)
		return XDP_PASS;
	int owner = decide(table, &parsed, queue);
	// An AF_XDP socket receives from its own queue only. Others get their frame through the
	// fan-out, which decides the same.
	if (owner < 0 || on_queue(table, queue) != (__u32)owner + 1)
		return XDP_PASS;
	__u32 ring = ring_of(table, &parsed, owner);
	if (ring != 0) {
		int action = bpf_redirect_map(&sockets, queue * RINGS + ring, XDP_PASS);
		if (action == XDP_REDIRECT)
			return action;
	}
	return bpf_redirect_map(&sockets, queue * RINGS, XDP_PASS);
}

SEC("socket")
int skink_fanout(struct __sk_buff *skb)
{
	// A TAP's begin with the Ethernet header, but have all headers in the buffer's head.
	struct packet packet = of_skb(skb, 0);
	__u32 zero = 0;
	struct parsed parsed;
	const struct owners *table = bpf_map_lookup_elem(&owners, &zero);

	if (!table || table->live == 0)
		return 0;
	int owner = lowest(table->live);
	if (parse(&packet, &parsed) == 0) {
		// The stack counts receive queues from 1; 0 means that it wasn't told.
		owner = decide(table, &parsed, skb->queue_mapping - 1);
	}
	if (owner < 0 || owner >= OWNERS)
		return 0;
	return table->fanout_index[owner];
}

SEC("socket")
int skink_steered(struct __sk_buff *skb)
{
	struct packet packet = of_skb(skb, ETH_HLEN);
	struct parsed parsed;

	return parse(&packet, &parsed) == 0 ? 0x7fffffff : 0;
}

// Whether a packet may be for every owner, by its first header alone.
static __always_inline int may_be_control(const struct packet *packet)
{
	__u8 protocol;

	if (packet->type == ETH_P_IP)
		return load(packet, 9, &protocol, 1) == 0 && protocol == IPPROTO_ICMP;
	if (packet->type == ETH_P_IPV6)
		return load(packet, 6, &protocol, 1) == 0 && protocol != IPPROTO_TCP &&
		       protocol != IPPROTO_UDP;
	return packet->type == ETH_P_ARP;
}

SEC("socket")
int skink_control(struct __sk_buff *skb)
{
	struct packet packet = of_skb(skb, ETH_HLEN);
	struct parsed parsed;

	// Each packet is shown to each owner's socket, and hardly any is for them.
	if (!may_be_control(&packet))
		return 0;
	return parse(&packet, &parsed) == EVERYONE ? 0x7fffffff : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
