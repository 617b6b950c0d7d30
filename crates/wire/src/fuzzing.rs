//! Bodies of the fuzz targets: what must hold for any bytes. Each panics when it does not.

use alloc::string::ToString;
use alloc::vec::Vec;

use crate::{bootconf, tftp};

/// A packet that parses, emits to bytes that parse to the same packet.
pub fn fuzz_tftp(data: &[u8]) {
    let Ok(packet) = tftp::Packet::parse(data) else {
        return;
    };
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    assert_eq!(tftp::Packet::parse(&bytes), Ok(packet));
    let (tftp::Packet::Rrq(tftp::Request { options, .. })
    | tftp::Packet::Wrq(tftp::Request { options, .. })
    | tftp::Packet::Oack(options)) = packet
    else {
        return;
    };
    let asked = tftp::TransferOptions::from_request(options);
    let mut pairs = Vec::new();
    asked.emit(&mut pairs);
    assert_eq!(
        tftp::TransferOptions::from_acknowledgement(tftp::Options::new(&pairs)),
        Ok(asked)
    );
}

/// A text is refused with reasons, or its configuration is whole and survives being written and read again.
pub fn fuzz_bootconf(data: &[u8]) {
    match bootconf::parse(data) {
        Ok(config) => {
            assert!(config.default_entry().is_some());
            let again =
                bootconf::parse(config.to_string()).expect("what was written must be readable");
            assert_eq!(
                again,
                bootconf::BootConfig {
                    warnings: Vec::new(),
                    ..config
                }
            );
        }
        Err(errors) => {
            assert!(!errors.is_empty() && errors.is_sorted_by_key(|error| error.line));
            let lines = data.split(|&b| b == b'\n').count();
            assert!(errors.iter().all(|error| (1..=lines).contains(&error.line)));
        }
    }
}
