//! Bodies of the fuzz targets: what must hold for any bytes. Each panics when it does not.

use alloc::string::ToString;
use alloc::vec::Vec;

use crate::dhcp::{Message, PxeOptions, option};
use crate::{bench, bootconf, tftp};

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

/// A text is refused with reasons, or its configuration is whole and survives being written and read again. Embedded, it is the same one, or
/// one without entries.
pub fn fuzz_bootconf(data: &[u8]) {
    let (parsed, embedded) = (bootconf::parse(data), bootconf::parse_embedded(data));
    if let Ok(config) = &parsed {
        assert!(config.default_entry().is_some());
    }
    match embedded {
        Ok(config) => {
            if config.entries.is_empty() {
                assert!(parsed.is_err() && !config.settings.is_empty());
            } else {
                assert_eq!(parsed.as_ref(), Ok(&config));
            }
            let again = bootconf::parse_embedded(config.to_string())
                .expect("what was written must be readable");
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
            assert!(parsed.is_err());
        }
    }
}

/// What a measurement asks and answers survives being written and read again, and nobody is asked for too much.
pub fn fuzz_bench(data: &[u8]) {
    if let Some(request) = bench::Request::parse(data) {
        let again = bench::Request::parse(request.emit().as_bytes());
        assert_eq!(again, Some(request));
        if let bench::Request::Send {
            payload, micros, ..
        } = request
        {
            assert!((1..=bench::MAX_PAYLOAD).contains(&payload) && micros <= bench::MAX_MICROS);
        }
    }
    if let Some(answer) = bench::Answer::parse(data) {
        let again = bench::Answer::parse(answer.emit().as_bytes());
        assert_eq!(again, Some(answer));
    }
}

/// A message that parses, emits to bytes that parse to the same message; the accessors keep to what they promise.
pub fn fuzz_dhcp(data: &[u8]) {
    let Ok(message) = Message::parse(data) else {
        return;
    };
    let again = Message::parse(&message.emit());
    assert_eq!(again.as_ref(), Ok(&message));
    let options = &message.options;
    assert!(options.get(option::OVERLOAD).is_none());
    for (code, value) in options.iter() {
        assert!(options.addresses(code).len() * 4 <= value.len());
        assert!(
            options
                .text(code)
                .is_none_or(|text| value.starts_with(text.as_bytes()))
        );
    }
    assert!(options.prefix().is_none_or(|prefix| prefix <= 32));
    for route in options.classless_routes().unwrap_or_default() {
        let host_bits = u32::MAX.checked_shr(route.prefix.into()).unwrap_or(0);
        assert_eq!(u32::from(route.destination) & host_bits, 0);
    }
    for name in options.domain_search().unwrap_or_default() {
        assert!((1..=253).contains(&name.len()));
    }
    let classes: usize = options.user_classes().iter().map(|class| class.len()).sum();
    assert!(classes <= options.get(option::USER_CLASS).unwrap_or_default().len());
    for text in [message.boot_file(), message.boot_server_name()]
        .into_iter()
        .flatten()
    {
        assert!(!text.is_empty() && !text.contains(char::is_control));
    }
    let _ = (message.message(), message.mac(), message.message_type());
    fuzz_pxe(options.get(option::VENDOR).unwrap_or_default());
}

/// Sub-options that parse survive being written and read again, unless a text grew out of its field by the
/// replacement of bad characters.
pub fn fuzz_pxe(data: &[u8]) {
    let Some(options) = PxeOptions::parse(data) else {
        return;
    };
    let again = PxeOptions::parse(&options.emit()).expect("what was written must be readable");
    if data.is_ascii() && !data.iter().any(|b| b.is_ascii_control() && *b != 0) {
        assert_eq!(again, options);
    }
    assert_eq!(again.discovery_control, options.discovery_control);
    assert_eq!(again.boot_servers, options.boot_servers);
    assert_eq!(again.item, options.item);
}
