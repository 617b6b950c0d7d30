//! Units to a file of the kernel's that takes each with `struct virtio_net_hdr` in front.

use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

use wireboot_card::{Header, MAX_HEAD, Unit};

use crate::memory::{Mapping, few};

/// Sends a unit; one in very many pieces is put together `aside`. False when the kernel has not taken it.
pub(super) fn send(
    memory: &Mapping,
    file: BorrowedFd<'_>,
    unit: &Unit<'_>,
    aside: &mut [u8],
) -> bool {
    let mut first = [0; Header::LEN + MAX_HEAD];
    let result = match first.get_mut(..Header::LEN + unit.head.len()) {
        Some(first) if few(unit.spans) => {
            let (header, head) = first.split_at_mut(Header::LEN);
            header.copy_from_slice(&unit.header.emit());
            head.copy_from_slice(unit.head);
            memory.write_to(file, first, unit.spans)
        }
        _ => send_aside(memory, file, unit, aside),
    };
    result.is_ok_and(|put| put == Header::LEN + unit.len)
}

#[cold]
fn send_aside(
    memory: &Mapping,
    file: BorrowedFd<'_>,
    unit: &Unit<'_>,
    aside: &mut [u8],
) -> io::Result<usize> {
    let outside = || io::Error::from(ErrorKind::InvalidInput);
    let whole = aside.get_mut(..Header::LEN + unit.len);
    let whole = whole.ok_or_else(outside)?;
    let (header, frame) = whole.split_at_mut(Header::LEN);
    header.copy_from_slice(&unit.header.emit());
    let parts = frame.split_at_mut_checked(unit.head.len());
    let (head, rest) = parts.ok_or_else(outside)?;
    head.copy_from_slice(unit.head);
    memory.gather(unit.spans, rest).map_err(|_| outside())?;
    memory.write_to(file, whole, &[])
}
