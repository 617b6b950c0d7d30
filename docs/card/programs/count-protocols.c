/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counts frames by IP protocol, both ways; others as number 256. */
#include "card.h"

MAP(from_guest, 257);
MAP(from_wire, 257);

static __always_inline __u32 protocol(const struct frame *frame)
{
	switch (get16(frame->data + 12)) {
	case 0x0800:
		return frame->data[14 + 9];
	case 0x86dd:
		return frame->data[14 + 6];
	default:
		return 256;
	}
}

SEC("guest") int count_from_guest(struct frame *frame)
{
	count(&from_guest, protocol(frame));
	return PASS;
}

SEC("wire") int count_from_wire(struct frame *frame)
{
	count(&from_wire, protocol(frame));
	return PASS;
}
