//! What is agreed with the card itself, beyond virtio ([`wireboot_wire::card`]).

use super::feature;
use crate::MacAddress;
use wireboot_wire::card::hello::{CHUNKS, Chunks, DATAGRAMS, Hello, Kind, LEN, PLACEMENT};

/// Frames are lent where they lie, however many there are. One that waits for others is answered so much later.
const CHUNKS_MOST: Chunks = Chunks {
    frames: u16::MAX,
    bytes: u32::MAX,
    micros: 10_000,
};

/// The question and its answer.
pub(super) struct Agreement {
    /// What the driver understands.
    understood: u32,
    /// Of the question that has no answer yet.
    token: Option<u64>,
    answer: Option<Hello>,
    /// The last answer that came said that the card gives chunks.
    gives_chunks: bool,
}

impl Agreement {
    /// Nothing is agreed on, with a device that is used with these features.
    pub(super) fn new(features: u64) -> Self {
        let if_has = |feature, understood| {
            if features & feature != 0 {
                understood
            } else {
                0
            }
        };
        let datagrams = if_has(feature::GUEST_UFO, DATAGRAMS);
        // Memory for files has no address of an IOMMU's.
        let placement = if features & feature::ACCESS_PLATFORM == 0 {
            if_has(feature::GUEST_CSUM, PLACEMENT)
        } else {
            0
        };
        Self {
            understood: CHUNKS | datagrams | placement,
            gives_chunks: false,
            token: None,
            answer: None,
        }
    }

    /// The question, which ends all that was agreed on.
    pub(super) fn ask(&mut self, source: MacAddress, token: u64) -> [u8; LEN] {
        self.token = Some(token);
        self.answer = None;
        let question = Hello {
            kind: Kind::Question,
            source,
            token,
            features: self.understood,
            chunks: CHUNKS_MOST,
        };
        question.emit()
    }

    /// Takes what the card said, in a unit with its mark. `None` when it is no answer to the question, and nothing changes.
    #[cold]
    pub(super) fn hear(&mut self, unit: &[u8]) -> Option<()> {
        let answer = Hello::parse(unit)?;
        if answer.kind != Kind::Answer || self.token != Some(answer.token) {
            return None;
        }
        self.token = None;
        self.gives_chunks = answer.features & CHUNKS != 0;
        self.answer = Some(Hello {
            features: answer.features & self.understood,
            ..answer
        });
        Some(())
    }

    /// Units from the card may be chunks.
    pub(super) fn gives_chunks(&self) -> bool {
        self.gives_chunks
    }

    /// Units for the card may be chunks.
    pub(super) fn takes_chunks(&self) -> bool {
        self.answer.is_some() && self.gives_chunks
    }

    pub(super) fn joins_datagrams(&self) -> bool {
        self.answer
            .is_some_and(|answer| answer.features & DATAGRAMS != 0)
    }

    pub(super) fn places(&self) -> bool {
        self.answer
            .is_some_and(|answer| answer.features & PLACEMENT != 0)
    }

    pub(super) fn agreed(&self) -> Option<Hello> {
        self.answer
    }
}
