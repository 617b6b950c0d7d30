//! The control queue (virtio 1.2, section 5.1.6.5): commands, one at a time, each waited for.

use alloc::vec::Vec;
use core::ptr::NonNull;

use super::device::Device;
use super::queue::VIRTQ_DESC_F_WRITE;
use super::ring::{Ring, queue_size};
use super::transport::Transport;
use super::{InitError, feature};
use crate::Fault;
use crate::platform::{PciFunction, Registers};
use crate::steering::{KEY, TABLE_LEN, table};

// struct virtio_net_config
const CONFIG_MAX_VIRTQUEUE_PAIRS: usize = 8;
const CONFIG_RSS_MAX_KEY_SIZE: usize = 17;
const CONFIG_RSS_MAX_INDIRECTION_TABLE_LENGTH: usize = 18;
const CONFIG_SUPPORTED_HASH_TYPES: usize = 20;

/// Queues have 16-bit numbers, and the control queue comes behind the pairs.
const MAX_PAIRS: u16 = 0x7fff;

// Hash types: TCP by addresses and ports. The only ones that are asked for, so that all else (ARP, DHCP, TFTP) comes to the first pair.
const VIRTIO_NET_HASH_TYPE_TCP_V4: u32 = 1 << 1;
const VIRTIO_NET_HASH_TYPE_TCP_V6: u32 = 1 << 4;
const HASH_TYPES: u32 = VIRTIO_NET_HASH_TYPE_TCP_V4 | VIRTIO_NET_HASH_TYPE_TCP_V6;

const VIRTIO_NET_CTRL_MQ: u8 = 4;
const VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET: u8 = 0;
const VIRTIO_NET_CTRL_MQ_RSS_CONFIG: u8 = 1;
const VIRTIO_NET_OK: u8 = 0;

/// A command in three buffers, as some devices want it: what to do, with what, and the answer.
const COMMAND: u16 = 0;
const DATA: u16 = 1;
const ACK: u16 = 2;
const QUEUE_SIZE: u16 = 4;
/// Holds the longest command, [`rss_config`].
const BUFFER_LEN: usize = 512;

/// How long the device may take for a command, in microseconds. A host that is busy changes its own queues meanwhile.
const COMMAND_MICROS: u32 = 1_000_000;
/// How often it is asked meanwhile whether it is still there.
const CHECK_MICROS: u32 = 1000;

/// What a device with several queue pairs offers.
pub(super) struct Offer {
    /// The features to accept for them.
    pub features: u64,
    /// How many pairs it has, at least 2.
    pub pairs: u16,
}

impl Offer {
    /// Reads what the device offers; `None` when that is one pair.
    pub(super) fn read<B: Registers>(
        transport: &Transport<B>,
        offered: u64,
    ) -> Result<Option<Self>, InitError> {
        let mut features = feature::MQ | feature::CTRL_VQ;
        if offered & features != features {
            return Ok(None);
        }
        let pairs = transport.config16(CONFIG_MAX_VIRTQUEUE_PAIRS);
        if !(1..=MAX_PAIRS).contains(&pairs) {
            return Err(InitError::Misbehaved("an impossible number of queue pairs"));
        }
        let key = usize::from(transport.config8(CONFIG_RSS_MAX_KEY_SIZE));
        let table = usize::from(transport.config16(CONFIG_RSS_MAX_INDIRECTION_TABLE_LENGTH));
        let hashes = transport.config32(CONFIG_SUPPORTED_HASH_TYPES);
        if offered & feature::RSS != 0
            && key >= KEY.len()
            && table >= TABLE_LEN
            && hashes & HASH_TYPES == HASH_TYPES
        {
            features |= feature::RSS;
        }
        Ok((pairs > 1).then_some(Self { features, pairs }))
    }
}

/// The control queue of a device.
pub(super) struct Control {
    ring: Ring,
}

impl Control {
    /// Sets up the queue behind the device's `pairs` pairs.
    ///
    /// # Safety
    /// As for [`Ring::new`].
    pub(super) unsafe fn new<P: PciFunction>(
        device: &mut Device<P>,
        pairs: u16,
    ) -> Result<Self, InitError> {
        let number = 2 * pairs.min(MAX_PAIRS);
        let size = queue_size(&device.shared.transport, number, QUEUE_SIZE, QUEUE_SIZE)?;
        // SAFETY: the caller's promise.
        let ring = unsafe { Ring::new(device, number, size, BUFFER_LEN)? };
        Ok(Self { ring })
    }

    /// Has the device use the first `pairs` pairs and steer by its hash. False when it refuses.
    pub(super) fn set_rss<P: PciFunction>(
        &mut self,
        device: &Device<P>,
        pairs: u16,
    ) -> Result<bool, Fault> {
        self.command(device, VIRTIO_NET_CTRL_MQ_RSS_CONFIG, &rss_config(pairs))
    }

    /// Has the device use the first `pairs` pairs and steer each flow to the pair that it came from. False when it refuses.
    pub(super) fn set_pairs<P: PciFunction>(
        &mut self,
        device: &Device<P>,
        pairs: u16,
    ) -> Result<bool, Fault> {
        self.command(
            device,
            VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET,
            &pairs.to_le_bytes(),
        )
    }

    /// Gives the device a command of the class MQ and waits for its answer.
    fn command<P: PciFunction>(
        &mut self,
        device: &Device<P>,
        command: u8,
        data: &[u8],
    ) -> Result<bool, Fault> {
        let user = device.user();
        if !user.running()? {
            return Err(Fault::Removed);
        }
        self.write(COMMAND, &[VIRTIO_NET_CTRL_MQ, command]);
        self.write(DATA, data);
        self.write(ACK, &[!VIRTIO_NET_OK]);
        let addresses = [COMMAND, DATA, ACK].map(|id| self.ring.buffers.address(id));
        let queue = &mut self.ring.queue;
        queue.describe_chained(COMMAND, addresses[0], 2, DATA);
        queue.describe_chained(DATA, addresses[1], data.len() as u32, ACK);
        queue.describe(ACK, addresses[2], 1, VIRTQ_DESC_F_WRITE);
        queue.offer(COMMAND);
        self.ring.publish(user.shared);
        for micros in 0..COMMAND_MICROS {
            match self.answer() {
                Ok(None) => {}
                Ok(Some(done)) => return Ok(done),
                Err(fault) => return user.fail(fault),
            }
            if micros % CHECK_MICROS == 0 {
                user.check()?;
            }
            device.stall_microsecond();
        }
        user.fail(&Fault::Misbehaved("it does not answer a command"))
    }

    /// The answer to a command, when it has come: whether the device obeyed.
    fn answer(&mut self) -> Result<Option<bool>, &'static Fault> {
        if self.ring.queue.returned()? == 0 {
            return Ok(None);
        }
        let (id, _) = self.ring.queue.peek()?;
        self.ring.queue.take(id);
        // SAFETY: the first byte of a buffer. Should the device write all the same, a volatile read takes what is there as plain data.
        let ack = unsafe { self.ring.buffers.at(ACK).read_volatile() };
        Ok(Some(ack == VIRTIO_NET_OK))
    }

    /// Writes the start of a buffer that the device does not have.
    fn write(&mut self, id: u16, bytes: &[u8]) {
        let len = bytes.len().min(self.ring.buffers.len);
        let source = NonNull::from(bytes).cast();
        // SAFETY: a buffer holds `buffer_len` bytes, of which no reference exists; `bytes` lies elsewhere, as nobody else can refer to them.
        unsafe {
            source.copy_to_nonoverlapping(self.ring.buffers.at(id), len);
        }
    }
}

/// `struct virtio_net_rss_config`: TCP is spread over the first `pairs` pairs, all else goes to the first.
fn rss_config(pairs: u16) -> Vec<u8> {
    const UNCLASSIFIED_QUEUE: u16 = 0;
    let mut bytes = Vec::with_capacity(BUFFER_LEN);
    bytes.extend(HASH_TYPES.to_le_bytes());
    bytes.extend((TABLE_LEN as u16 - 1).to_le_bytes());
    bytes.extend(UNCLASSIFIED_QUEUE.to_le_bytes());
    for entry in 0..TABLE_LEN {
        bytes.extend((table(entry, pairs.into()) as u16).to_le_bytes());
    }
    // max_tx_vq: as many transmit queues.
    bytes.extend(pairs.to_le_bytes());
    bytes.push(KEY.len() as u8);
    bytes.extend(KEY);
    bytes
}
