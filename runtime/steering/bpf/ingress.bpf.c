// SPDX-License-Identifier: MIT OR GPL-2.0
//
// Keeps packets to Skink's addresses from the kernel's own stack, which would drop them by itself or, where it
// forwards, pass them on or refuse them. Packet sockets have their copy by then. The layout of the map is repeated in
// src/addresses.rs.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Of `enum tcx_action_base` of linux/bpf.h, from 6.6 on.
#define TCX_NEXT -1
#define TCX_DROP 2
#define VLAN_ID 0xfff

struct address {
	__u32 word[4]; // network byte order; IPv4 as ::ffff:a.b.c.d
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u32);
} addresses SEC(".maps");

SEC("classifier")
int skink_ingress(struct __sk_buff *skb)
{
	struct address to = {};
	long missing;

	// A packet begins with its Ethernet header here. Not by `bpf_skb_load_bytes_relative`, which looks at the buffer's
	// head only: the IP header may be behind it.
	//
	// A tagged packet belongs to another interface, unless the tag tells its priority only (802.1p).
	if (skb->vlan_present && skb->vlan_tci & VLAN_ID)
		return TCX_NEXT;
	switch (bpf_ntohs(skb->protocol)) {
	case ETH_P_IP:
		to.word[2] = bpf_htonl(0xffff);
		missing = bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct iphdr, daddr),
					     &to.word[3], 4);
		break;
	case ETH_P_IPV6:
		missing = bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, daddr), &to, 16);
		break;
	default:
		return TCX_NEXT;
	}
	return !missing && bpf_map_lookup_elem(&addresses, &to) ? TCX_DROP : TCX_NEXT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
