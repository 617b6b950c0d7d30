//! A loader without a network stack of its own, whose TFTP goes by UdpWrite and UdpRead of the PXE base code.

use super::*;
use crate::base_code::{Expected, Host, Outgoing, Port};
use crate::hub::Hub;

/// A machine whose loader calls UdpWrite and UdpRead.
struct Machine {
    fixture: Fixture,
    hub: Hub<Box<dyn Link>>,
}

impl Port for Machine {
    fn now(&mut self) -> Instant {
        self.fixture.turn();
        self.fixture.net.now()
    }

    fn link_up(&self) -> bool {
        true
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        self.hub.send(header, payload)
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.hub.receive()
    }

    fn show(&mut self, _: bool, _: &[u8]) -> bool {
        true
    }
}

struct Nobody;

impl Link for Nobody {
    fn set_up(&mut self, _: bool) {}

    fn send(&mut self, _: &[u8; 14], _: &[u8]) -> bool {
        false
    }

    fn peek(&mut self) -> Option<&[u8]> {
        None
    }

    fn skip(&mut self) {}
}

/// A Windows client's own TFTP over the PXE base code ends in the machine, too.
#[test]
fn datagrams_of_udp_write_are_answered_near() {
    for near_end in [true, false] {
        let script = FaultyTftpScript::new(300_000);
        let mut fixture = Fixture::new(near_end, script.clone(), Faults::default());
        let mut mac = [0; 6];
        mac.copy_from_slice(&fixture.header[..6]);
        let mut hub = Hub::new(core::mem::replace(&mut fixture.link, Box::new(Nobody)));
        hub.set_host_up(true);
        let mut machine = Machine { fixture, hub };
        let mut host = Host::new(mac, 1500, [5; 32]);
        host.configure(US.into(), 24, None);
        let mut server = tftp::PORT;
        let write = |machine: &mut Machine, host: &mut Host, server, packet: &Packet<'_>| {
            let mut bytes = Vec::new();
            packet.emit(&mut bytes);
            let outgoing = Outgoing {
                to: (SERVER, server).into(),
                gateway: None,
                source: None,
                source_port: Some(PORT),
                parts: [&[], &bytes],
                may_fragment: false,
            };
            host.udp_write(machine, &outgoing).unwrap();
        };
        let (filename, mode) = ("boot/file", "octet");
        let options = Options::new(WINDOWS.options);
        let request = Request {
            filename,
            mode,
            options,
        };
        write(&mut machine, &mut host, server, &Packet::Rrq(request));
        let expected = Expected {
            destination: None,
            destination_port: Some(PORT),
            source: Some(SERVER.into()),
            source_port: None,
            use_filter: false,
        };
        let (mut file, mut next) = (Vec::<u8>::new(), 0_u16);
        loop {
            let datagram = host.udp_read(&mut machine, &expected).unwrap();
            server = datagram.source.port();
            let mut last = false;
            match Packet::parse(&datagram.payload).unwrap() {
                Packet::Oack(granted) => {
                    let names = granted.map(|(name, _)| name).collect::<Vec<_>>();
                    assert!(!names.contains(&"msftwindow") && names.contains(&"windowsize"));
                }
                Packet::Data { block, payload } => {
                    assert_eq!(block, next);
                    file.extend(payload);
                    last = payload.len() < 1456;
                }
                other => panic!("{other:?}"),
            }
            if last || next.is_multiple_of(4) {
                write(
                    &mut machine,
                    &mut host,
                    server,
                    &Packet::Ack { block: next },
                );
            }
            next += 1;
            if last {
                break;
            }
        }
        assert!(file == script.file);
        let world = machine.fixture.net.0.borrow();
        assert_eq!((world.opened > 0, world.downloads.len()), (near_end, 0));
    }
}
