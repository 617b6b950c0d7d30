/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Flips a bit in the first byte of each 16th block of TFTP (RFC 1350) that comes to the guest. */
#include "card.h"

MAP(blocks, 1);

enum { DATA = 3, BLOCK = 34 + 8, PAYLOAD = BLOCK + 4 };

SEC("wire") int flip_bit(struct frame *frame)
{
	__u8 *data = frame->data;
	if (behind_ipv4(frame, UDP) != 34 || frame->len <= PAYLOAD || get16(data + BLOCK) != DATA)
		return PASS;
	/* What comes from a reserved port is no transfer. */
	if (get16(data + 34) < 1024)
		return PASS;
	if (count(&blocks, 0) % 16 == 0)
		data[PAYLOAD] ^= 1;
	return PASS;
}
