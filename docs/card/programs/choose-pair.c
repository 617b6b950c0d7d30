/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Spreads TCP connections over the pairs of queues, by the guest's port. */
#include "card.h"

MAP(frames, 8);

SEC("wire") int choose_pair(struct frame *frame)
{
	__u32 tcp = behind_ipv4(frame, TCP);
	if (tcp == 0 || tcp > 400 || frame->pairs == 0)
		return PASS;
	frame->pair = get16(frame->data + tcp + 2) % frame->pairs;
	count(&frames, frame->pair);
	return PASS;
}
