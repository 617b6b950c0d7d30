use super::*;
use crate::membership::GROUPS;
use proptest::prelude::*;
use std::vec;

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// Half of all delays.
const HALF: u16 = 0x8000;

fn at(ms: i64) -> Instant {
    Instant::from_millis(ms)
}

fn group(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(239, 1, 2, last)
}

/// What is sent: to whom, and the message without its checksum. All of it is checked.
fn due(igmp: &mut Igmp, ms: i64) -> Vec<(Ipv4Addr, Vec<u8>)> {
    let packets = igmp.due(US, HALF, at(ms));
    let read = packets.iter().map(|bytes| {
        let (header, message) = bytes.split_at(24);
        assert_eq!(header[..2], [0x46, 0xc0]);
        assert_eq!(usize::from(be16(header, 2).unwrap()), bytes.len());
        assert_eq!((header[8], header[9]), (1, 2));
        assert_eq!(header[12..16], US.octets());
        assert_eq!(header[20..], [0x94, 4, 0, 0]);
        assert_eq!((compute(0, header), compute(0, message)), (0, 0));
        let to: [u8; 4] = array(header, 16).unwrap();
        let mut message = message.to_vec();
        message[2..4].fill(0);
        (to.into(), message)
    });
    read.collect()
}

/// A report of version 3 (RFC 3376, section 4.2).
fn report(records: &[(u8, Ipv4Addr)]) -> Vec<(Ipv4Addr, Vec<u8>)> {
    let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, records.len() as u8];
    for (kind, group) in records {
        message.extend([*kind, 0, 0, 0]);
        message.extend(group.octets());
    }
    vec![(Ipv4Addr::new(224, 0, 0, 22), message)]
}

/// A message of version 1 or 2 about a group (RFC 2236, section 2).
fn about(to: Ipv4Addr, kind: u8, group: Ipv4Addr) -> (Ipv4Addr, Vec<u8>) {
    let [a, b, c, d] = group.octets();
    (to, vec![kind, 0, 0, 0, a, b, c, d])
}

fn query(asked: Ipv4Addr, code: u8, len: usize) -> Vec<u8> {
    let mut message = vec![0x11, code, 0, 0];
    message.extend(asked.octets());
    message.resize(len, 0);
    packet(ROUTER, ALL_SYSTEMS, &message)
}

/// The packet with this changed, and its sums right.
fn changed(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut bytes);
    bytes[10..12].fill(0);
    let sum = compute(0, &bytes[..24]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[26..28].fill(0);
    let sum = compute(0, &bytes[24..]);
    bytes[26..28].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Two groups, reported.
fn listener() -> Igmp {
    let mut igmp = Igmp::default();
    igmp.set([group(1), group(2)].into_iter(), at(0));
    assert!(!due(&mut igmp, 0).is_empty() && !due(&mut igmp, 9000).is_empty());
    assert_eq!(igmp.groups.poll_at(), None);
    igmp
}

/// RFC 3376, section 5.1: the records of a filter mode that changes.
#[test]
fn joining_and_leaving_is_told_twice() {
    let mut igmp = Igmp::default();
    let all = [group(2), ALL_SYSTEMS, group(1), US, group(1)];
    igmp.set(all.into_iter(), at(0));
    let joins = report(&[(4, group(1)), (4, group(2))]);
    assert_eq!(due(&mut igmp, 0), joins);
    assert_eq!(due(&mut igmp, 499), []);
    assert_eq!(due(&mut igmp, 500), joins);
    igmp.set([group(2)].into_iter(), at(1000));
    let leaves = report(&[(3, group(1))]);
    assert_eq!(due(&mut igmp, 1000), leaves);
    assert!(!igmp.is_empty());
    assert_eq!(due(&mut igmp, 1500), leaves);
    igmp.set([].into_iter(), at(2000));
    assert_eq!(due(&mut igmp, 2000), report(&[(3, group(2))]));
    assert_eq!(due(&mut igmp, 2500), report(&[(3, group(2))]));
    assert!(igmp.is_empty());
    assert_eq!(due(&mut igmp, 100_000), []);
}

#[test]
fn no_more_groups_than_fit() {
    let mut igmp = Igmp::default();
    igmp.set((0..100).map(group), at(0));
    assert_eq!(due(&mut igmp, 0)[0].1.len(), 8 + 8 * GROUPS);
}

/// RFC 3376, sections 4.1.1 and 7.1.
#[test]
fn queries_are_answered_in_the_version_and_time_that_they_say() {
    let three = || report(&[(2, group(1)), (2, group(2))]);
    let older = |kind| {
        [1, 2]
            .map(|last| about(group(last), kind, group(last)))
            .to_vec()
    };
    // Group, maximum response code, length; half of the delay.
    for (asked, code, len, delay, answer) in [
        (NONE, 100, 12, 5000, three()),
        (group(1), 100, 16, 5000, three()),
        (NONE, 0x7f, 12, 6350, three()),
        (NONE, 0x80, 12, 6400, three()),
        (NONE, 0xff, 12, 1_587_200, three()),
        (NONE, 100, 8, 5000, older(0x16)),
        (group(2), 255, 8, 12_750, older(0x16)),
        (NONE, 0, 8, 5000, older(0x12)),
    ] {
        let mut igmp = listener();
        igmp.hear(&query(asked, code, len), HALF, at(10_000));
        assert_eq!(igmp.groups.poll_at(), Some(at(10_000 + delay)));
        assert_eq!(due(&mut igmp, 10_000 + delay - 1), []);
        assert_eq!(due(&mut igmp, 10_000 + delay), answer);
        assert_eq!(igmp.groups.poll_at(), None);
    }
}

/// RFC 3376, section 7.2.1, and what RFC 2236 has for joining and leaving.
#[test]
fn as_long_as_an_older_querier_is_about_its_version_is_spoken() {
    let mut igmp = listener();
    igmp.hear(&query(NONE, 1, 8), 0, at(10_000));
    due(&mut igmp, 10_000);
    igmp.set([group(3)].into_iter(), at(20_000));
    let leave = |last| about(ALL_ROUTERS, 0x17, group(last));
    let join = about(group(3), 0x16, group(3));
    assert_eq!(due(&mut igmp, 20_000), [leave(1), leave(2), join]);
    due(&mut igmp, 21_000);
    // Version 1 knows nothing of leaving, and is older still.
    igmp.hear(&query(NONE, 0, 8), 0, at(30_000));
    due(&mut igmp, 30_000);
    igmp.set([group(4)].into_iter(), at(40_000));
    assert_eq!(due(&mut igmp, 40_000), [about(group(4), 0x12, group(4))]);
    due(&mut igmp, 41_000);
    let all = query(NONE, 0x10, 12);
    for (ms, old) in [(289_999, true), (290_000, false)] {
        igmp.hear(&all, 0, at(ms));
        let kind = due(&mut igmp, ms)[0].1[0];
        assert_eq!(kind, if old { 0x12 } else { 0x22 }, "{ms}");
    }
    // That of version 2 ended at 270 s.
    assert!(igmp.two < Some(at(270_001)));
}

/// RFC 3376, sections 4.1, 7.1 and 9.1.
#[test]
fn wrong_queries_are_not_answered() {
    let right = || query(NONE, 100, 12);
    let damaged = |at: usize| {
        let mut bytes = right();
        bytes[at] ^= 1;
        bytes
    };
    for wrong in [
        damaged(20),
        damaged(25),
        changed(right(), |bytes| bytes[0] = 0x56),
        changed(right(), |bytes| bytes[6] = 0x20),
        changed(right(), |bytes| bytes[7] = 1),
        changed(right(), |bytes| bytes[8] = 2),
        changed(right(), |bytes| bytes[9] = 1),
        changed(right(), |bytes| bytes[24] = 0x22),
        // No alert: another option, the end before it, one beyond the header.
        changed(right(), |bytes| bytes[20] = 7),
        changed(right(), |bytes| bytes[20] = 0),
        changed(right(), |bytes| {
            bytes[20..24].copy_from_slice(&[7, 40, 0x94, 4])
        }),
        changed(right(), |bytes| {
            bytes[20..24].copy_from_slice(&[7, 0, 0x94, 4])
        }),
        query(NONE, 100, 9),
        query(NONE, 100, 11),
        query(group(3), 100, 12),
        query(ROUTER, 100, 12),
        right()[..30].to_vec(),
    ] {
        let mut igmp = listener();
        igmp.hear(&wrong, 0, at(10_000));
        assert_eq!(igmp.groups.poll_at(), None, "{wrong:?}");
    }
    // Behind another option; and version 1 needs none.
    for right in [
        changed(right(), |bytes| {
            bytes[20..24].copy_from_slice(&[1, 0x94, 4, 0])
        }),
        changed(query(NONE, 0, 8), |bytes| bytes[20] = 7),
        // With padding behind it.
        [right(), vec![7; 20]].concat(),
    ] {
        let mut igmp = listener();
        igmp.hear(&right, 0, at(10_000));
        assert!(igmp.groups.poll_at().is_some(), "{right:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(payload: Vec<u8>, random: u16) {
        crate::fuzzing::fuzz_igmp(&payload);
        let mut igmp = listener();
        igmp.hear(&packet(ROUTER, ALL_SYSTEMS, &payload), random, at(0));
        igmp.due(US, random, at(10_000_000));
    }
}
