/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Delays each tenth ACK of TCP (RFC 9293) that comes from the guest, without data, by 20 ms. */
#include "card.h"

MAP(acks, 1);

enum { FLAGS = 13, ACK = 0x10, SYN_FIN_RST = 0x07 };

SEC("guest") int delay_acks(struct frame *frame)
{
	__u8 *data = frame->data;
	/* Without options of IPv4. */
	if (behind_ipv4(frame, TCP) != 34)
		return PASS;
	if ((data[34 + FLAGS] & (ACK | SYN_FIN_RST)) != ACK)
		return PASS;
	/* The packet's length, as short frames are padded. */
	if (get16(data + 16) != 20 + (data[34 + 12] >> 4) * 4)
		return PASS;
	if (count(&acks, 0) % 10 == 0)
		frame->delay = 20000;
	return PASS;
}
