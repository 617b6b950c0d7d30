/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Loses the third DHCPOFFER (RFC 2131) that comes to the guest. */
#include "card.h"

MAP(offers, 1);

/* Offsets in the frame: the IPv4 header has no options. */
enum { PORT = 36, CLIENT = 68, OPTIONS = 14 + 20 + 8 + 240, MESSAGE_TYPE = 53, OFFER = 2 };

SEC("wire") int lose_third_offer(struct frame *frame)
{
	const __u8 *option = frame->data + OPTIONS;
	if (behind_ipv4(frame, UDP) != 34 || get16(frame->data + PORT) != CLIENT)
		return PASS;
	/* Servers send the message type first. */
	if (option[0] != MESSAGE_TYPE || option[1] != 1 || option[2] != OFFER)
		return PASS;
	return count(&offers, 0) == 3 ? DROP : PASS;
}
