//! What is agreed with the card itself, beyond virtio ([`wireboot_wire::card`]).

use super::feature;
use crate::MacAddress;
use wireboot_wire::card::hello::{Chunks, DATAGRAMS, Hello, Kind, LEN};

/// The question and its answer.
pub(super) struct Agreement {
    /// What the driver understands.
    understood: u32,
    /// Of the question that has no answer yet.
    token: Option<u64>,
    answer: Option<Hello>,
}

impl Agreement {
    /// Nothing is agreed on, with a device that is used with these features.
    pub(super) fn new(features: u64) -> Self {
        let datagrams = features & feature::GUEST_UFO != 0;
        Self {
            understood: if datagrams { DATAGRAMS } else { 0 },
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
            chunks: Chunks::default(),
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
        self.answer = Some(Hello {
            features: answer.features & self.understood,
            ..answer
        });
        Some(())
    }

    pub(super) fn agreed(&self) -> Option<Hello> {
        self.answer
    }
}
