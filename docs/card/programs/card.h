/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What programs for wireboot's card are written with; see docs/card.md.
 *
 *     clang -target bpf -O2 -c NAME.c -o NAME.o
 */
#ifndef WIREBOOT_CARD_H
#define WIREBOOT_CARD_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))

/* What a program returns. */
enum { PASS = 0, DROP = 1 };

/* What it sees of a frame. */
struct frame {
	/* Told by the card: nanoseconds since it began, bytes of the frame, 0 from the guest or 1 from the wire, pairs of queues. */
	__u64 time;
	__u32 len;
	__u16 from_wire;
	__u16 pairs;
	/* Told by the program: microseconds of delay, up to 1000000; copies besides the frame, up to 8; the pair by which the frame
	 * goes on, at first that by which it has come. */
	__u32 delay;
	__u16 copies;
	__u16 pair;
	/* The first bytes of the frame, from the Ethernet header on, and zeros behind its end. What is changed within the frame's
	 * length is changed in the frame. */
	__u8 data[512];
};

/* A map: 64-bit numbers that stay from frame to frame, and stand in the card's --stats. */
struct bpf_map_def {
	__u32 type;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
	__u32 map_flags;
};

#define BPF_MAP_TYPE_ARRAY 2
#define MAP(name, entries) \
	struct bpf_map_def SEC("maps") name = { BPF_MAP_TYPE_ARRAY, sizeof(__u32), sizeof(__u64), entries, 0 }

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;

/* Adds 1. The number then; 0 where the map has no such entry. */
static __always_inline __u64 count(void *map, __u32 key)
{
	__u64 *value = bpf_map_lookup_elem(map, &key);
	return value ? ++*value : 0;
}

/* Numbers of frames are in network order, and need not be aligned. */
static __always_inline __u16 get16(const __u8 *at)
{
	return at[0] << 8 | at[1];
}

/* Where what is behind an IPv4 header begins, in a frame without a VLAN tag; 0 for a packet of another protocol, or another fragment than the
 * first. */
static __always_inline __u32 behind_ipv4(const struct frame *frame, __u8 protocol)
{
	const __u8 *ip = frame->data + 14;
	if (frame->len < 34 || get16(frame->data + 12) != 0x0800 || ip[0] >> 4 != 4 || ip[9] != protocol)
		return 0;
	if (get16(ip + 6) & 0x1fff)
		return 0;
	return 14 + (ip[0] & 15) * 4;
}

enum { TCP = 6, UDP = 17 };

#endif
