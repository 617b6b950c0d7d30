//! The driver against a device that does what a fuzzer's bytes say; and, for every driver, the contract that it has to keep.

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use super::{Commands, Model, ModelConfig, ModelPci, UnitHeader};
use crate::virtio::{SpreadError, VirtioNet, VirtioPair, feature};
use crate::{Fault, Nic, Offload, Receive, SendError, Transmit};
use wireboot_wire::card::MARK;
use wireboot_wire::card::hello::{CHUNKS, Chunks, Hello, Kind};

/// Runs the virtio-net driver against a hostile device: `data` configures the device, then lists what
/// driver and device do in turn.
///
/// # Panics
/// When the driver breaks its contract: a frame that is not what [`crate::Frame`] promises, a fault that does not
/// last, a device in use after it lied, memory given back while the device runs.
pub fn fuzz_virtio(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (config, pairs) = config(&mut bytes);
    let model = Model::new(config);
    if let Ok(nic) = VirtioNet::with_pairs(model.pci(), pairs) {
        let device = model.clone();
        run(
            &model,
            Held::new(nic, move || device.is_running()),
            &mut bytes,
        );
    }
    assert!(
        !model.freed_while_running(),
        "memory freed under the device"
    );
    assert_eq!(model.blocks(), 0, "memory lost");
}

/// The fuzzer's bytes, zeros at the end.
pub(super) struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub(super) fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }
}

/// What the device is, and how many queue pairs the driver wants.
fn config(bytes: &mut Bytes<'_>) -> (ModelConfig, usize) {
    let mut config = ModelConfig::default();
    let kind = bytes.u8();
    for (bit, features) in [
        feature::MRG_RXBUF,
        feature::COALESCING,
        feature::CSUM,
        feature::GUEST_CSUM,
    ]
    .into_iter()
    .enumerate()
    {
        if kind & 1 << bit != 0 {
            config.features &= !features;
        }
    }
    let mut pairs = 1;
    if kind & 0x10 != 0 {
        let (wanted, there, how) = (bytes.u8(), bytes.u8(), bytes.u8());
        pairs = usize::from(wanted % 4) + 1;
        config.features |= ModelConfig::with_pairs(1).features;
        config.pairs = u16::from(there % 4) + 1;
        if how & 1 != 0 {
            config.features &= !feature::RSS;
        }
        if how & 2 != 0 {
            config.rss = (bytes.u8(), bytes.u16(), bytes.u16().into());
        }
        if how & 4 != 0 {
            config.control_size = bytes.u16();
        }
        if how & 8 != 0 {
            // With fewer than there are, the driver asks a queue that nobody answers on; it waits too long for that to be done often.
            let told = Some(bytes.u16());
            config.pairs_reported = told.filter(|told| *told == 0 || *told > config.pairs);
        }
    }
    if kind & 0x20 != 0 {
        config.queue_sizes = [bytes.u16(), bytes.u16()];
    }
    if kind & 0x40 != 0 {
        config.mtu = bytes.u16();
        config.features ^= u64::from(bytes.u16()) << 23;
    }
    if kind & 0x80 != 0 {
        for _ in 0..bytes.u8() % 8 {
            config.config_lies.push((bytes.u8(), bytes.u8()));
        }
    }
    (config, pairs)
}

fn run(model: &Model, mut driver: Held<VirtioNet<ModelPci>>, bytes: &mut Bytes<'_>) {
    let taken = driver.nic.take_pairs();
    // Of another pair's fault the device does not hear before the first pair does.
    let mut others: Vec<Held<VirtioPair<ModelPci>>> = taken
        .into_iter()
        .map(|pair| Held::new(pair, || false))
        .collect();
    while !bytes.0.is_empty() {
        let what = bytes.u8();
        // Which pair: 0 is the first.
        let pair = usize::from(what / 16) % (others.len() + 1);
        // A queue of that pair, or of the last one the control queue.
        let queue = |n: u8| 2 * pair + usize::from(n % if pair < others.len() { 2 } else { 3 });
        match what % 16 {
            action @ 0..=6 => match pair.checked_sub(1) {
                None => driver.act(action, bytes),
                Some(other) => others[other].act(action, bytes),
            },
            7 | 8 => {
                let header = UnitHeader {
                    flags: bytes.u8(),
                    gso_type: bytes.u8(),
                    gso_size: bytes.u16(),
                };
                let unit = vec![bytes.u8(); bytes.u16().into()];
                model.deliver_to(pair, header, &unit);
            }
            9 => drop(model.collect_from(pair)),
            10 => {
                let (queue, id, len) = (queue(bytes.u8()), bytes.u16(), bytes.u16());
                model.lie_used(queue, id.into(), len.into());
            }
            11 => model.lie_index(queue(bytes.u8()), bytes.u16()),
            12 => {
                let header: Vec<u8> = (0..12).map(|_| bytes.u8()).collect();
                model.lie_buffer(2 * pair, bytes.u8().into(), &header);
            }
            13 => {
                let (queue, flags) = (queue(bytes.u8()), bytes.u16());
                model.lie_wishes(queue, flags);
            }
            14 => match bytes.u8() {
                0 => model.remove(),
                1 => match pair.checked_sub(1) {
                    None => {
                        driver.stop();
                        others.iter_mut().for_each(|other| other.stopped = true);
                    }
                    Some(other) => others[other].stop(),
                },
                // A status of all ones is what a removed device has.
                value => model.set_status(value & 0x7f),
            },
            _ => match bytes.u8() {
                up @ 0..=1 => model.set_link_up(up != 0),
                2 => drop(others.pop()),
                3 => model.set_commands(match bytes.u8() {
                    0 => Commands::Obey,
                    1 => Commands::RefuseHash,
                    2 => Commands::Refuse,
                    ack => Commands::Lie {
                        id: bytes.u8().into(),
                        ack,
                    },
                }),
                0xff => driver.agree_chunks(model),
                pairs => driver.spread((pairs % 8).into()),
            },
        }
    }
    // Whatever a pair has met, the first returns too.
    let met = others.iter().find_map(|other| other.fault);
    if met.is_some() && !driver.stopped {
        driver.burst(1);
        assert_eq!(driver.fault, met);
    }
}

impl Held<VirtioNet<ModelPci>> {
    /// The driver asks, and the device answers that it gives chunks.
    fn agree_chunks(&mut self, model: &Model) {
        let answer = Hello {
            kind: Kind::Answer,
            source: [0; 6],
            token: 1,
            features: CHUNKS,
            chunks: Chunks::default(),
        };
        let result = self.nic.ask_card(answer.token);
        if let Err(SendError::Fault(fault)) = result {
            self.note(Some(fault));
        }
        let marked = UnitHeader {
            gso_type: MARK,
            ..UnitHeader::default()
        };
        model.deliver(marked, &answer.emit());
    }

    fn spread(&mut self, pairs: usize) {
        let there = self.nic.pairs();
        match self.nic.spread(pairs) {
            Ok(steering) => assert!(steering.pairs() == pairs && (1..=there).contains(&pairs)),
            Err(SpreadError::NoSuchPairs { .. }) => assert!(pairs == 0 || pairs > there),
            Err(SpreadError::Refused(_)) => assert!(there > 1),
            Err(SpreadError::Fault(fault)) => self.note(Some(fault)),
        }
    }
}

/// A driver, held to its contract whatever its device does.
pub(super) struct Held<N> {
    nic: N,
    device_runs: Box<dyn Fn() -> bool>,
    /// The first fault returned.
    fault: Option<Fault>,
    stopped: bool,
}

impl<N: Nic> Held<N> {
    pub(super) fn new(nic: N, device_runs: impl Fn() -> bool + 'static) -> Self {
        Self {
            nic,
            device_runs: Box::new(device_runs),
            fault: None,
            stopped: false,
        }
    }

    /// Has the driver do one of the things, by numbers from 0 to 6, that engines ask of it.
    pub(super) fn act(&mut self, action: u8, bytes: &mut Bytes<'_>) {
        match action {
            0..=2 => self.burst(bytes.u8().into()),
            3 => self.send(bytes.u16()),
            4 => {
                let result = self.nic.split().1.flush();
                self.note(result.err());
            }
            5 => {
                let (_, mut tx) = self.nic.split();
                let room = tx.room();
                assert!(room <= 256);
                tx.idle();
            }
            _ => drop(self.nic.link_up()),
        }
    }

    pub(super) fn stop(&mut self) {
        self.nic.stop();
        self.stopped = true;
    }

    fn burst(&mut self, budget: usize) {
        let max = self.nic.properties().max_receive;
        let (mut rx, mut tx) = self.nic.split();
        let mut count = 0;
        let result = rx.burst(budget, |frame| {
            count += 1;
            let first = frame.parts.first().expect("a frame without parts");
            let sum: usize = frame.parts.iter().map(|part| part.len()).sum();
            assert_eq!(sum, frame.len);
            assert!(first.len() >= frame.len.min(128) && frame.len <= max);
            assert_ne!(frame.udp_segment, Some(0));
            // Touches each byte, and answers while the unit is on loan.
            let answer = frame.parts.iter().copied().flatten().fold(0, |a, b| a ^ b);
            tx.send(60, Offload::None, &mut |out| out.fill(answer)).ok();
        });
        drop((rx, tx));
        if let Ok(lent) = result {
            assert!(lent == count && lent <= budget);
            assert!(!self.stopped || lent == 0);
        }
        self.note(result.err());
    }

    fn send(&mut self, len: u16) {
        let offload = match len % 3 {
            0 => Offload::L4Checksum {
                start: len,
                offset: len >> 8,
            },
            1 => Offload::TcpSegmentation {
                start: len >> 9,
                header_len: len >> 8,
                mss: len >> 6,
            },
            _ => Offload::None,
        };
        let (_, mut tx) = self.nic.split();
        let result = tx.send(len.into(), offload, &mut |frame| {
            assert_eq!(frame.len(), usize::from(len));
            frame.fill(0x5a);
        });
        drop(tx);
        if let Err(SendError::Fault(fault)) = result {
            self.note(Some(fault));
        }
    }

    /// A fault lasts, and the device is off.
    fn note(&mut self, fault: Option<Fault>) {
        if self.stopped && matches!(fault, None | Some(Fault::Removed)) {
            // A stopped driver answers so, unless it met a fault before or on its way out.
        } else if self.fault.is_some() {
            assert_eq!(fault, self.fault);
        } else if fault.is_some() {
            self.fault = fault;
            assert!(!(self.device_runs)(), "a faulty device still in use");
        }
    }
}
