use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::wires::testing::{content, memory, room, with_unit};

const NOW: Duration = Duration::from_secs(1);

/// A machine at a port.
struct Machine {
    port: SwitchPort,
    memory: Mapping,
    number: u8,
}

fn machines(count: usize) -> Vec<Machine> {
    machines_of(&vec![1500; count])
}

fn machines_of(mtus: &[u16]) -> Vec<Machine> {
    let plan = |mtu: &u16| PortPlan {
        mtu: *mtu,
        mac: None,
    };
    machines_at(&mtus.iter().map(plan).collect::<Vec<_>>())
}

/// Of which these say their addresses.
fn machines_known(known: [bool; 3]) -> Vec<Machine> {
    let plan = |(number, known): (u8, bool)| PortPlan {
        mtu: 1500,
        mac: known.then(|| mac(number)),
    };
    machines_at(&(0..).zip(known).map(plan).collect::<Vec<_>>())
}

fn machines_at(plans: &[PortPlan]) -> Vec<Machine> {
    let ports = switch(plans).unwrap().into_iter();
    let numbers = 0u8..;
    ports
        .zip(numbers)
        .map(|(port, number)| Machine {
            port,
            memory: memory(),
            number,
        })
        .collect()
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

impl Machine {
    fn send(&mut self, to: [u8; 6], payload: &[u8]) -> bool {
        let frame = [&to[..], &mac(self.number), &[8, 0], payload].concat();
        let given = with_unit(&self.memory, &frame, 50, |unit| {
            self.port.send(&self.memory, unit, NOW)
        });
        self.port.flush();
        given
    }

    /// The payload of each frame that has come.
    fn received(&mut self) -> Vec<Vec<u8>> {
        let room = room(700);
        std::iter::from_fn(|| match self.port.receive(&self.memory, &room, NOW) {
            Received::Unit { len, header } => {
                assert_eq!(header, Header::default());
                Some(content(&self.memory, &room, len).split_off(LINK))
            }
            Received::Nothing => None,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// Its wait would end.
    fn is_rung(&self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(
            self.port.descriptor(),
            PollFlags::IN,
        )];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut polled, Some(&at_once)).unwrap() == 1
    }
}

#[test]
fn unknown_addresses_are_looked_for_and_known_ones_are_not() {
    let mut all = machines(3);
    assert!(all[0].send(mac(1), b"who is 1?"));
    assert!(all[1].is_rung() && all[2].is_rung() && !all[0].is_rung());
    assert_eq!(all[1].received(), [b"who is 1?"]);
    assert_eq!(all[2].received(), [b"who is 1?"]);
    assert!(all[0].received().is_empty());
    assert!(!all[1].is_rung());
    // They have learnt where 0 is.
    assert!(all[1].send(mac(0), b"I am"));
    assert_eq!(all[0].received(), [b"I am"]);
    assert!(all[0].send(mac(1), b"you"));
    assert_eq!(all[1].received(), [b"you"]);
    assert!(!all[2].is_rung() && all[2].received().is_empty());
    assert!(all[0].send([0xff; 6], b"all"));
    for other in &mut all[1..] {
        assert_eq!(other.received(), [b"all"]);
    }
}

/// Who sends from another's address, which was said, gets nothing of what is for that.
#[test]
fn an_address_that_was_said_stays_behind_its_port() {
    let mut all = machines_known([false, false, true]);
    all[0].number = 2;
    assert!(all[0].send([0xff; 6], b"I am 2"));
    for other in &mut all[1..] {
        assert_eq!(other.received(), [b"I am 2"]);
    }
    assert!(all[1].send(mac(2), b"for 2"));
    assert_eq!(all[2].received(), [b"for 2"]);
    assert!(all[0].received().is_empty());
}

#[test]
fn a_port_whose_address_was_said_sends_from_that_alone() {
    let mut all = machines_known([true, false, false]);
    all[0].number = 2;
    assert!(!all[0].send([0xff; 6], b"I am 2"));
    all[0].number = 0;
    assert!(all[0].send([0xff; 6], b"I am 0"));
    for other in &mut all[1..] {
        assert_eq!(other.received(), [b"I am 0"]);
    }
}

#[test]
fn a_full_port_loses_its_own_frames_alone() {
    let mut all = machines(3);
    for n in 0..=255 {
        // The last half finds no buffer at 2, which takes none.
        assert!(all[0].send([0xff; 6], &[n]));
        assert_eq!(all[1].received(), [[n]]);
    }
    // To nobody else.
    assert!(all[2].send(mac(0), b"0?"));
    assert_eq!(all[0].received(), [b"0?"]);
    assert!(!all[0].send(mac(2), b"too much"));
    let waited: Vec<_> = all[2].received().concat();
    assert_eq!(waited, (0..WAITING as u8).collect::<Vec<_>>());
    assert!(all[0].send(mac(2), b"room"));
    assert_eq!(all[2].received(), [b"room"]);
}

#[test]
fn what_came_for_the_driver_before_is_lost_and_its_buffers_are_not() {
    let mut all = machines(2);
    for _ in 0..3 {
        for n in 0..WAITING {
            assert!(all[0].send(mac(1), &[n as u8]));
        }
        assert!(!all[0].send(mac(1), b"full"));
        all[1].port.restart();
        assert!(all[1].received().is_empty());
    }
}

#[test]
fn what_is_no_frame_of_the_link_goes_nowhere() {
    let mut all = machines(2);
    let [one, two] = &mut all[..] else { panic!() };
    for (len, goes) in [(13, false), (14, true), (1518, true), (1519, false)] {
        let frame = vec![0; len];
        let given = with_unit(&one.memory, &frame, 2000, |unit| {
            one.port.send(&one.memory, unit, NOW)
        });
        assert_eq!(given, goes, "{len}");
        let got = two.received();
        assert_eq!(got.len(), usize::from(goes));
    }
    // A room that is too short loses the frame, not its buffer.
    for _ in 0..2 * WAITING {
        assert!(one.send(mac(1), &[7; 100]));
        let short = two.port.receive(&two.memory, &room(700)[..0], NOW);
        assert_eq!(short, Received::TooLong);
    }
}

/// Each on a thread of its own, which waits where nothing has come: no wake-up is lost, and of each sender frames come in order.
#[test]
fn threads_that_wait_are_woken() {
    const FRAMES: u32 = 20_000;
    let all = machines(3);
    let threads: Vec<_> = all
        .into_iter()
        .map(|mut machine| {
            std::thread::spawn(move || {
                let (number, begun) = (machine.number, Instant::now());
                let mut got = [0u32; 3];
                let (mut sent, mut next) = (0, (number + 1) % 3);
                while sent < FRAMES || got.iter().sum::<u32>() < FRAMES {
                    assert!(
                        begun.elapsed() < Duration::from_secs(60),
                        "{number}: {got:?}"
                    );
                    for payload in machine.received() {
                        let from = usize::from(payload[0]);
                        let n = u32::from_le_bytes(payload[1..5].try_into().unwrap());
                        // Those of one sender for this machine have its numbers in order.
                        assert_eq!(n, got[from]);
                        got[from] += 1;
                    }
                    if sent == FRAMES {
                        let mut polled = [PollFd::from_borrowed_fd(
                            machine.port.descriptor(),
                            PollFlags::IN,
                        )];
                        let long = Timespec {
                            tv_sec: 60,
                            tv_nsec: 0,
                        };
                        if got.iter().sum::<u32>() < FRAMES {
                            poll(&mut polled, Some(&long)).unwrap();
                        }
                        continue;
                    }
                    let n = (sent / 2).to_le_bytes();
                    if machine.send_known(next, &[&[number][..], &n].concat()) {
                        sent += 1;
                        next = (number + 1 + (sent % 2) as u8) % 3;
                    } else {
                        std::thread::yield_now();
                    }
                }
                got
            })
        })
        .collect();
    for (number, thread) in threads.into_iter().enumerate() {
        let mut wanted = [FRAMES / 2; 3];
        wanted[number] = 0;
        assert_eq!(thread.join().unwrap(), wanted);
    }
}

impl Machine {
    /// To a machine that is behind the port of its number.
    fn send_known(&mut self, to: u8, payload: &[u8]) -> bool {
        self.port.table.learn(mac(to), usize::from(to), NOW);
        self.send(mac(to), payload)
    }
}

/// A port has packets of up to its MTU, with a link header and a tag, and loses what another port has longer.
#[test]
fn each_port_has_an_mtu() {
    let mut all = machines_of(&[9000, 576, 9000]);
    let mut sent = |from: usize, len: usize| {
        let frame = [&[0xff; 6][..], &mac(from as u8), &vec![7; len - 12]].concat();
        let machine = &mut all[from];
        let given = with_unit(&machine.memory, &frame, 9018, |unit| {
            machine.port.send(&machine.memory, unit, NOW)
        });
        let mut got = Vec::new();
        for machine in &mut all {
            let room = room(9018);
            if let Received::Unit { len: came, .. } =
                machine.port.receive(&machine.memory, &room, NOW)
            {
                assert_eq!(came, len);
                assert!(content(&machine.memory, &room, len) == frame);
                got.push(machine.number);
            }
        }
        (given, got)
    };
    assert_eq!(sent(0, 594), (true, vec![1, 2]));
    assert_eq!(sent(0, 595), (true, vec![2]));
    assert_eq!(sent(2, 595), (true, vec![0]));
    assert_eq!(sent(2, 9018), (true, vec![0]));
    assert_eq!(sent(2, 9019), (false, vec![]));
    assert_eq!(sent(1, 594), (true, vec![0, 2]));
    assert_eq!(sent(1, 595), (false, vec![]));
    // A buffer is lost by none of these.
    for _ in 0..WAITING {
        assert_eq!(sent(0, 9018), (true, vec![2]));
        assert_eq!(sent(0, 594), (true, vec![1, 2]));
    }
}
