//! Sequence number arithmetic (RFC 9293, section 3.4), modulo 2^32.

/// True when `a` comes after `b`.
#[inline]
#[must_use]
pub fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// True when `a` is `b` or comes after it.
#[inline]
#[must_use]
pub fn at_or_after(a: u32, b: u32) -> bool {
    !after(b, a)
}

/// The later one of two.
#[inline]
pub(crate) fn later(a: u32, b: u32) -> u32 {
    if after(a, b) { a } else { b }
}

/// The earlier one of two.
#[inline]
pub(crate) fn earlier(a: u32, b: u32) -> u32 {
    if after(a, b) { b } else { a }
}

/// How far `to` lies behind `from`; 0 when it does not.
#[inline]
pub(crate) fn ahead(to: u32, from: u32) -> u32 {
    if after(to, from) {
        to.wrapping_sub(from)
    } else {
        0
    }
}
