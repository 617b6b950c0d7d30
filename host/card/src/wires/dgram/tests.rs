use std::fs;

use super::*;
use crate::wires::testing::{content, memory, room, with_unit};

fn frame(n: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_add(n)).collect()
}

/// Another program's socket, and ours.
fn both(folder: &Path) -> (UnixDatagram, Dgram) {
    let theirs = UnixDatagram::bind(folder.join("theirs")).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let ours = Dgram::open(&folder.join("ours"), &folder.join("theirs"), 1500).unwrap();
    (theirs, ours)
}

#[test]
fn each_frame_is_a_datagram_each_way() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, mut ours) = both(folder.path());
    let memory = memory();
    // The last is more pieces than go to the kernel at once.
    for each in [2000, 700, 12] {
        for len in [14, 60, 1518] {
            let sent = frame(len as u8, len);
            assert!(with_unit(&memory, &sent, each, |unit| ours.send(&memory, unit)));
            let mut got = [0; 2000];
            assert_eq!(theirs.recv(&mut got).unwrap(), len);
            assert!(got[..len] == sent);

            let room = room(each as u32);
            assert_eq!(ours.receive(&memory, &room), Received::Nothing);
            theirs.send_to(&sent, folder.path().join("ours")).unwrap();
            let header = Header::default();
            assert_eq!(ours.receive(&memory, &room), Received::Unit { header, len });
            assert!(content(&memory, &room, len) == sent);
        }
    }
}

#[test]
fn what_is_no_frame_of_the_link_does_not_come() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, mut ours) = both(folder.path());
    let (memory, room) = (memory(), room(2000));
    let mut coming = |len: usize| {
        theirs
            .send_to(&frame(0, len), folder.path().join("ours"))
            .unwrap();
        ours.receive(&memory, &room)
    };
    assert_eq!(coming(0), Received::Kept);
    assert_eq!(coming(13), Received::Kept);
    assert_eq!(coming(2001), Received::TooLong);
    assert!(matches!(coming(1518), Received::Unit { .. }));
}

#[test]
fn what_came_before_a_restart_is_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, mut ours) = both(folder.path());
    let (memory, room) = (memory(), room(2000));
    let send = |len| {
        let sent = theirs.send_to(&frame(0, len), folder.path().join("ours"));
        assert_eq!(sent.unwrap(), len);
    };
    for len in [60, 0, 2001, 70] {
        send(len);
    }
    ours.restart();
    assert_eq!(ours.receive(&memory, &room), Received::Nothing);
    send(80);
    let got = ours.receive(&memory, &room);
    assert!(matches!(got, Received::Unit { len: 80, .. }), "{got:?}");
}

#[test]
fn the_other_end_may_come_go_and_be_full() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, mut ours) = both(folder.path());
    let memory = memory();
    let mut send = || {
        with_unit(&memory, &frame(0, 60), 2000, |unit| {
            ours.send(&memory, unit)
        })
    };
    assert!(send());
    drop(theirs);
    fs::remove_file(folder.path().join("theirs")).unwrap();
    assert!(!send());
    let theirs = UnixDatagram::bind(folder.path().join("theirs")).unwrap();
    assert!(send());
    let mut count = 1;
    while send() {
        count += 1;
        assert!(count < 100_000, "nothing is full");
    }
    theirs.recv(&mut [0; 100]).unwrap();
    assert!(send());
}

#[test]
fn a_socket_that_nobody_has_is_replaced_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ours");
    let open = || Dgram::open(&path, Path::new("/nowhere"), 1500);
    drop(UnixDatagram::bind(&path).unwrap());
    let end = open().unwrap();
    assert!(matches!(open().unwrap_err(), DgramError::InUse(_)));
    drop(end);
    assert!(!path.exists());
    fs::write(&path, "precious").unwrap();
    assert!(matches!(open().unwrap_err(), DgramError::NoSocket(_)));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}
