/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Drops what comes from an Ethernet address: -DMAC=0x525400123456, without it that one. */
#include "card.h"

#ifndef MAC
#define MAC 0x525400123456
#endif

MAP(dropped, 1);

SEC("wire") int drop_mac(struct frame *frame)
{
	const __u8 *source = frame->data + 6;
	__u64 mac = (__u64)get16(source) << 32 | (__u64)get16(source + 2) << 16 | get16(source + 4);
	if (mac != (__u64)MAC)
		return PASS;
	count(&dropped, 0);
	return DROP;
}
