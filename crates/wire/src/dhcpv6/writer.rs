//! Writing DHCPv6 messages.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::option::{self, IaAddress, IaNa, Status};
use super::{MessageType, TRANSACTION_ID};
use crate::dhcp::option::domains;

/// A message that grows by one option after the other. An option of more than 65,535 bytes cannot be written and is left out.
#[derive(Clone, Debug)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A message without options. Of the transaction ID the lower 24 bits count.
    pub fn new(kind: MessageType, transaction_id: u32) -> Self {
        let [_, a, b, c] = (transaction_id & TRANSACTION_ID).to_be_bytes();
        Self(alloc::vec![kind.code(), a, b, c])
    }

    /// The message as a UDP payload.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// Writes an option whose value `write` appends.
    fn with(&mut self, code: u16, write: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.0.len();
        self.0.extend_from_slice(&code.to_be_bytes());
        self.0.extend_from_slice(&[0, 0]);
        let value = self.0.len();
        write(self);
        match u16::try_from(self.0.len() - value) {
            Ok(length) => {
                let at = self.0.iter_mut().skip(start + 2);
                at.zip(length.to_be_bytes())
                    .for_each(|(to, byte)| *to = byte);
            }
            Err(_) => self.0.truncate(start),
        }
        self
    }

    /// An option by its bytes.
    pub fn option(&mut self, code: u16, value: impl AsRef<[u8]>) -> &mut Self {
        self.with(code, |out| out.0.extend_from_slice(value.as_ref()))
    }

    /// An identity association with what `inner` writes in place of `ia.options`: addresses, a status.
    pub fn ia_na(&mut self, ia: &IaNa<'_>, inner: impl FnOnce(&mut Self)) -> &mut Self {
        self.with(option::IA_NA, |out| {
            for field in [ia.iaid, ia.t1, ia.t2] {
                out.0.extend_from_slice(&field.to_be_bytes());
            }
            inner(out);
        })
    }

    /// An address of an identity association, with its options.
    pub fn ia_address(&mut self, address: &IaAddress<'_>) -> &mut Self {
        self.with(option::IA_ADDRESS, |out| {
            out.0.extend_from_slice(&address.address.octets());
            for lifetime in [address.preferred_lifetime, address.valid_lifetime] {
                out.0.extend_from_slice(&lifetime.to_be_bytes());
            }
            for (code, value) in address.options.iter() {
                out.option(code, value);
            }
        })
    }

    /// How it went: [`option::STATUS_CODE`].
    pub fn status(&mut self, status: Status<'_>) -> &mut Self {
        self.with(option::STATUS_CODE, |out| {
            out.0.extend_from_slice(&status.code.0.to_be_bytes());
            out.0.extend_from_slice(status.message);
        })
    }

    /// An option that is a list of two-byte numbers: [`option::OPTION_REQUEST`], [`option::ARCHITECTURE`].
    pub fn words(&mut self, code: u16, words: &[u16]) -> &mut Self {
        self.with(code, |out| {
            words
                .iter()
                .for_each(|word| out.0.extend_from_slice(&word.to_be_bytes()));
        })
    }

    /// An option that is a list of addresses: [`option::DNS_SERVERS`].
    pub fn addresses(&mut self, code: u16, addresses: &[Ipv6Addr]) -> &mut Self {
        self.with(code, |out| {
            addresses
                .iter()
                .for_each(|address| out.0.extend_from_slice(&address.octets()));
        })
    }

    /// An option that is strings, each behind its length: [`option::USER_CLASS`], [`option::BOOT_FILE_PARAMETERS`]. A string of more than
    /// 65,535 bytes is left out.
    pub fn strings<T: AsRef<[u8]>>(&mut self, code: u16, strings: &[T]) -> &mut Self {
        self.with(code, |out| out.counted(strings))
    }

    /// The vendor classes of one vendor.
    pub fn vendor_class<T: AsRef<[u8]>>(
        &mut self,
        enterprise_number: u32,
        classes: &[T],
    ) -> &mut Self {
        self.with(option::VENDOR_CLASS, |out| {
            out.0.extend_from_slice(&enterprise_number.to_be_bytes());
            out.counted(classes);
        })
    }

    /// Vendor-specific information: what `inner` writes are the vendor's own options.
    pub fn vendor_options(
        &mut self,
        enterprise_number: u32,
        inner: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.with(option::VENDOR_OPTIONS, |out| {
            out.0.extend_from_slice(&enterprise_number.to_be_bytes());
            inner(out);
        })
    }

    /// Domain search list. What is no domain name without its final dot is left out.
    pub fn domain_search<T: AsRef<str>>(&mut self, names: &[T]) -> &mut Self {
        self.with(option::DOMAIN_SEARCH, |out| {
            for name in names.iter().map(AsRef::as_ref) {
                let mut encoded = Vec::new();
                for label in name.split('.') {
                    encoded.push(label.len() as u8);
                    encoded.extend_from_slice(label.as_bytes());
                }
                encoded.push(0);
                if domains(&encoded).is_some_and(|read| read == [name]) {
                    out.0.extend_from_slice(&encoded);
                }
            }
        })
    }

    fn counted<T: AsRef<[u8]>>(&mut self, strings: &[T]) {
        for string in strings.iter().map(AsRef::as_ref) {
            if let Ok(length) = u16::try_from(string.len()) {
                self.0.extend_from_slice(&length.to_be_bytes());
                self.0.extend_from_slice(string);
            }
        }
    }
}
