//! The bytes of messages.

/// Bytes of the header: request, flags, and the size of what follows.
pub(super) const HEADER_LEN: usize = 12;
/// The longest payload that is taken; that of a memory table is 264.
pub(super) const MAX_PAYLOAD: usize = 512;
/// Parts of guest memory that a table may have.
pub(super) const MAX_REGIONS: usize = 8;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// In the number of a ring: no descriptor comes with the message.
const NO_FD: u64 = 1 << 8;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("a message of another version of vhost-user")]
    Version,
    #[error("a reply to nothing")]
    Reply,
    #[error("a request where an answer is due")]
    NoReply,
    #[error("a message of {0} bytes: longer than any of vhost-user")]
    TooLong(u32),
    #[error("request {0}, which was not offered")]
    Unknown(u32),
    #[error("request {request} with {len} bytes, which it does not have")]
    Length { request: u32, len: usize },
    #[error("a memory table of {0} parts")]
    Regions(u32),
    #[error("request {request} for ring {ring}, of which there is none")]
    Ring { request: u32, ring: u64 },
}

/// What each message begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub request: u32,
    pub need_reply: bool,
    pub len: usize,
}

impl Header {
    /// That of a request.
    pub(super) fn parse(bytes: [u8; HEADER_LEN]) -> Result<Self, MessageError> {
        Self::parse_either(bytes).and_then(|(header, is_reply)| match is_reply {
            true => Err(MessageError::Reply),
            false => Ok(header),
        })
    }

    /// That of an answer.
    pub(super) fn parse_reply(bytes: [u8; HEADER_LEN]) -> Result<Self, MessageError> {
        Self::parse_either(bytes).and_then(|(header, is_reply)| match is_reply {
            true => Ok(header),
            false => Err(MessageError::NoReply),
        })
    }

    fn parse_either(bytes: [u8; HEADER_LEN]) -> Result<(Self, bool), MessageError> {
        let [r0, r1, r2, r3, f0, f1, f2, f3, l0, l1, l2, l3] = bytes;
        let request = u32::from_le_bytes([r0, r1, r2, r3]);
        let flags = u32::from_le_bytes([f0, f1, f2, f3]);
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version);
        }
        let size = usize::try_from(len).ok().filter(|len| *len <= MAX_PAYLOAD);
        let header = Self {
            request,
            need_reply: flags & NEED_REPLY != 0,
            len: size.ok_or(MessageError::TooLong(len))?,
        };
        Ok((header, flags & REPLY != 0))
    }

    /// The header of the answer to `request`.
    pub(super) fn reply(request: u32, len: usize) -> [u8; HEADER_LEN] {
        Self::emit(request, REPLY, len)
    }

    /// The header of `request`, which is to be answered though it has no answer of its own.
    pub(super) fn request(request: u32, need_reply: bool, len: usize) -> [u8; HEADER_LEN] {
        Self::emit(request, if need_reply { NEED_REPLY } else { 0 }, len)
    }

    fn emit(request: u32, flags: u32, len: usize) -> [u8; HEADER_LEN] {
        let [r0, r1, r2, r3] = request.to_le_bytes();
        let [f0, f1, f2, f3] = (VERSION | flags).to_le_bytes();
        let [l0, l1, l2, l3] = (len as u32).to_le_bytes();
        [r0, r1, r2, r3, f0, f1, f2, f3, l0, l1, l2, l3]
    }
}

/// A part of guest memory, as the monitor tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryRegion {
    /// Where it begins for the guest: a guest physical address.
    pub guest: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The same place in the monitor's own memory, by which it tells where rings are.
    pub user: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// One of the descriptors that a ring has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingEvent {
    /// The guest rings it when there is something new in the ring.
    Kick,
    /// The card interrupts the guest by it.
    Call,
    /// Tells the monitor that the ring is broken.
    Error,
}

/// What the monitor wants. Rings are by number: 0 is what the guest receives from, 1 what it sends by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemoryTable(Vec<MemoryRegion>),
    SetRingSize {
        ring: usize,
        size: u32,
    },
    SetRingAddresses {
        ring: usize,
        descriptors: u64,
        used: u64,
        available: u64,
    },
    SetRingBase {
        ring: usize,
        base: u32,
    },
    GetRingBase {
        ring: usize,
    },
    SetRingEvent {
        ring: usize,
        event: RingEvent,
        fd: bool,
    },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNumber,
    SetRingEnable {
        ring: usize,
        enable: bool,
    },
}

/// Pairs of queues that a guest has at most.
pub(crate) const MAX_PAIRS: usize = 8;
/// Rings of that many pairs.
pub(super) const RINGS: usize = 2 * MAX_PAIRS;

impl Request {
    /// Takes a message apart.
    pub(super) fn parse(request: u32, payload: &[u8]) -> Result<Self, MessageError> {
        let fields = Fields { request, payload };
        Ok(match request {
            1 => fields.empty(Self::GetFeatures)?,
            2 => Self::SetFeatures(fields.number()?),
            3 => fields.empty(Self::SetOwner)?,
            4 => fields.empty(Self::ResetOwner)?,
            5 => Self::SetMemoryTable(regions(&fields)?),
            8 => {
                let (ring, size) = fields.ring_state()?;
                Self::SetRingSize { ring, size }
            }
            9 => fields.addresses()?,
            10 => {
                let (ring, base) = fields.ring_state()?;
                Self::SetRingBase { ring, base }
            }
            11 => {
                let (ring, _) = fields.ring_state()?;
                Self::GetRingBase { ring }
            }
            12 => fields.event(RingEvent::Kick)?,
            13 => fields.event(RingEvent::Call)?,
            14 => fields.event(RingEvent::Error)?,
            15 => fields.empty(Self::GetProtocolFeatures)?,
            16 => Self::SetProtocolFeatures(fields.number()?),
            17 => fields.empty(Self::GetQueueNumber)?,
            18 => {
                let (ring, enable) = fields.ring_state()?;
                let enable = enable != 0;
                Self::SetRingEnable { ring, enable }
            }
            _ => return Err(MessageError::Unknown(request)),
        })
    }

    /// Its number in the specification of vhost-user.
    pub(super) fn number(&self) -> u32 {
        match self {
            Self::GetFeatures => 1,
            Self::SetFeatures(_) => 2,
            Self::SetOwner => 3,
            Self::ResetOwner => 4,
            Self::SetMemoryTable(_) => 5,
            Self::SetRingSize { .. } => 8,
            Self::SetRingAddresses { .. } => 9,
            Self::SetRingBase { .. } => 10,
            Self::GetRingBase { .. } => 11,
            Self::SetRingEvent { event, .. } => match event {
                RingEvent::Kick => 12,
                RingEvent::Call => 13,
                RingEvent::Error => 14,
            },
            Self::GetProtocolFeatures => 15,
            Self::SetProtocolFeatures(_) => 16,
            Self::GetQueueNumber => 17,
            Self::SetRingEnable { .. } => 18,
        }
    }

    /// Its payload, which [`Self::parse`] takes apart.
    pub(super) fn payload(&self) -> Vec<u8> {
        let state = |ring: usize, value: u32| vec![ring as u64 | u64::from(value) << 32];
        let words = match self {
            Self::GetFeatures
            | Self::SetOwner
            | Self::ResetOwner
            | Self::GetProtocolFeatures
            | Self::GetQueueNumber => Vec::new(),
            Self::SetFeatures(features) | Self::SetProtocolFeatures(features) => vec![*features],
            Self::SetMemoryTable(regions) => {
                let region = |r: &MemoryRegion| [r.guest, r.len, r.user, r.offset];
                let count = regions.len() as u64;
                [count]
                    .into_iter()
                    .chain(regions.iter().flat_map(region))
                    .collect()
            }
            Self::SetRingSize { ring, size } => state(*ring, *size),
            Self::SetRingBase { ring, base } => state(*ring, *base),
            Self::GetRingBase { ring } => state(*ring, 0),
            Self::SetRingEnable { ring, enable } => state(*ring, u32::from(*enable)),
            Self::SetRingAddresses {
                ring,
                descriptors,
                used,
                available,
            } => vec![*ring as u64, *descriptors, *used, *available, 0],
            Self::SetRingEvent { ring, fd, .. } => {
                vec![*ring as u64 | if *fd { 0 } else { NO_FD }]
            }
        };
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// A payload to be read.
struct Fields<'a> {
    request: u32,
    payload: &'a [u8],
}

impl Fields<'_> {
    fn exact<const N: usize>(&self) -> Result<[u8; N], MessageError> {
        self.payload.try_into().map_err(|_| MessageError::Length {
            request: self.request,
            len: self.payload.len(),
        })
    }

    fn empty(&self, request: Request) -> Result<Request, MessageError> {
        self.exact::<0>().map(|_| request)
    }

    fn number(&self) -> Result<u64, MessageError> {
        self.exact().map(u64::from_le_bytes)
    }

    fn ring(&self, ring: u64) -> Result<usize, MessageError> {
        let request = self.request;
        usize::try_from(ring)
            .ok()
            .filter(|ring| *ring < RINGS)
            .ok_or(MessageError::Ring { request, ring })
    }

    fn ring_state(&self) -> Result<(usize, u32), MessageError> {
        let word = self.number()?;
        Ok((self.ring(word & 0xffff_ffff)?, (word >> 32) as u32))
    }

    fn event(&self, event: RingEvent) -> Result<Request, MessageError> {
        let word = self.number()?;
        Ok(Request::SetRingEvent {
            ring: self.ring(word & 0xff)?,
            event,
            fd: word & NO_FD == 0,
        })
    }

    /// Ring and flags, then descriptors, used, available, and an address for a log that is not offered.
    fn addresses(&self) -> Result<Request, MessageError> {
        let bytes: [u8; 40] = self.exact()?;
        let [state, descriptors, used, available, _] = words(&bytes);
        Ok(Request::SetRingAddresses {
            ring: self.ring(state & 0xffff_ffff)?,
            descriptors,
            used,
            available,
        })
    }
}

fn regions(fields: &Fields<'_>) -> Result<Vec<MemoryRegion>, MessageError> {
    let length = MessageError::Length {
        request: fields.request,
        len: fields.payload.len(),
    };
    let (count, rest) = fields.payload.split_first_chunk::<8>().ok_or(length)?;
    let count = u64::from_le_bytes(*count) as u32;
    let (regions, rest) = rest.as_chunks::<32>();
    if count as usize > MAX_REGIONS {
        return Err(MessageError::Regions(count));
    }
    if regions.len() != count as usize || !rest.is_empty() {
        return Err(length);
    }
    let region = |bytes: &[u8; 32]| {
        let [guest, len, user, offset] = words(bytes);
        MemoryRegion {
            guest,
            len,
            user,
            offset,
        }
    };
    Ok(regions.iter().map(region).collect())
}

/// The first numbers of the bytes, zeros where there are none.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let (chunks, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|n| chunks.get(n).map_or(0, |word| u64::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked() {
        let header = |request: u32, flags: u32, len: u32| {
            let mut bytes = [0; HEADER_LEN];
            for (to, from) in bytes.chunks_mut(4).zip([request, flags, len]) {
                to.copy_from_slice(&from.to_le_bytes());
            }
            Header::parse(bytes)
        };
        let good = |need_reply| Header {
            request: 5,
            need_reply,
            len: 264,
        };
        assert_eq!(header(5, 1, 264), Ok(good(false)));
        assert_eq!(header(5, 9, 264), Ok(good(true)));
        assert_eq!(header(5, 0, 264), Err(MessageError::Version));
        assert_eq!(header(5, 5, 264), Err(MessageError::Reply));
        assert_eq!(header(5, 1, 513), Err(MessageError::TooLong(513)));
        assert_eq!(Header::reply(5, 8), [5, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0]);
    }

    #[test]
    fn payloads_are_taken_apart() {
        let words = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let parse = |request, payload: &[u64]| Request::parse(request, &words(payload)).unwrap();
        assert_eq!(parse(1, &[]), Request::GetFeatures);
        assert_eq!(parse(2, &[1 << 32]), Request::SetFeatures(1 << 32));
        assert_eq!(
            parse(8, &[1 | 256 << 32]),
            Request::SetRingSize { ring: 1, size: 256 }
        );
        assert_eq!(
            parse(9, &[1, 2, 3, 4, 5]),
            Request::SetRingAddresses {
                ring: 1,
                descriptors: 2,
                used: 3,
                available: 4
            }
        );
        assert_eq!(
            parse(12, &[0x101]),
            Request::SetRingEvent {
                ring: 1,
                event: RingEvent::Kick,
                fd: false
            }
        );
        assert_eq!(
            parse(5, &[1, 2, 3, 4, 5]),
            Request::SetMemoryTable(vec![MemoryRegion {
                guest: 2,
                len: 3,
                user: 4,
                offset: 5
            }])
        );
        assert_eq!(
            parse(18, &[1 << 32]),
            Request::SetRingEnable {
                ring: 0,
                enable: true
            }
        );
    }

    /// The other side's messages are held by the ones that are written out above.
    #[test]
    fn what_is_put_together_is_taken_apart() {
        let ring = 5;
        let region = |guest| MemoryRegion {
            guest,
            len: 2,
            user: 3,
            offset: 4,
        };
        let event = |event, fd| Request::SetRingEvent { ring, event, fd };
        for request in [
            Request::GetFeatures,
            Request::SetFeatures(1 << 63 | 7),
            Request::SetOwner,
            Request::ResetOwner,
            Request::SetMemoryTable(vec![region(1), region(9)]),
            Request::SetRingSize { ring, size: 256 },
            Request::SetRingAddresses {
                ring,
                descriptors: 1 << 40,
                used: 2,
                available: 3,
            },
            Request::SetRingBase { ring, base: 7 },
            Request::GetRingBase { ring },
            event(RingEvent::Kick, true),
            event(RingEvent::Call, false),
            event(RingEvent::Error, true),
            Request::GetProtocolFeatures,
            Request::SetProtocolFeatures(9),
            Request::GetQueueNumber,
            Request::SetRingEnable { ring, enable: true },
        ] {
            let payload = request.payload();
            let parsed = Request::parse(request.number(), &payload);
            assert_eq!(parsed.as_ref(), Ok(&request));
            let header = Header::request(request.number(), true, payload.len());
            let expected = Header {
                request: request.number(),
                need_reply: true,
                len: payload.len(),
            };
            assert_eq!(Header::parse(header), Ok(expected));
            assert_eq!(Header::parse_reply(header), Err(MessageError::NoReply));
        }
        let answer = Header {
            request: 11,
            need_reply: false,
            len: 8,
        };
        assert_eq!(Header::parse_reply(Header::reply(11, 8)), Ok(answer));
    }

    #[test]
    fn what_is_none_is_refused() {
        let length = |request, len| Err(MessageError::Length { request, len });
        assert_eq!(Request::parse(1, &[0]), length(1, 1));
        assert_eq!(Request::parse(2, &[0; 7]), length(2, 7));
        assert_eq!(Request::parse(5, &[0; 4]), length(5, 4));
        let mut table = vec![2, 0, 0, 0, 0, 0, 0, 0];
        table.resize(8 + 32, 0);
        assert_eq!(Request::parse(5, &table), length(5, 40));
        table[0] = 9;
        assert_eq!(Request::parse(5, &table), Err(MessageError::Regions(9)));
        assert_eq!(Request::parse(24, &[]), Err(MessageError::Unknown(24)));
        assert_eq!(
            Request::parse(11, &[16, 0, 0, 0, 0, 0, 0, 0]),
            Err(MessageError::Ring {
                request: 11,
                ring: 16
            })
        );
    }
}
