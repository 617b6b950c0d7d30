//! Bodies of the fuzz targets: what must hold for any bytes. Each panics when it does not.

use alloc::string::ToString;
use alloc::vec::Vec;

use crate::card::hello::Hello;
use crate::card::placement::{Note, PlacementRequest};
use crate::dhcp::{Message, PxeOptions, option};
use crate::load_option::{self, LoadOption, NetworkBoot};
use crate::{bootconf, dhcpv6, filetype, ladder, tftp};

/// What parses as a hello says the same when it is emitted again.
pub fn fuzz_hello(data: &[u8]) {
    if let Some(hello) = Hello::parse(data) {
        assert_eq!(Hello::parse(&hello.emit()), Some(hello));
    }
}

/// What parses as a request or a note says the same when it is emitted again.
pub fn fuzz_placement(data: &[u8]) {
    if let Some(request) = PlacementRequest::parse(data) {
        let emitted = request.emit([0; 6]);
        assert_eq!(PlacementRequest::parse(&emitted), Some(request));
    }
    if let Some(note) = data.first_chunk().and_then(Note::parse) {
        assert_eq!(Note::parse(&note.emit()), Some(note));
    }
}

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
/// one without entries. No program is a text, and what else it may be can be told of any bytes.
pub fn fuzz_bootconf(data: &[u8]) {
    let (parsed, embedded) = (bootconf::parse(data), bootconf::parse_embedded(data));
    let misfit = filetype::misfit(data);
    if filetype::is_efi_program(data) {
        assert!(parsed.is_err() && misfit.is_none_or(|what| what.contains("ISO")));
    }
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
pub fn fuzz_ladder(data: &[u8]) {
    if let Some(request) = ladder::Request::parse(data) {
        let again = ladder::Request::parse(request.emit().as_bytes());
        assert_eq!(again, Some(request));
        if let ladder::Request::Send {
            payload, micros, ..
        } = request
        {
            assert!((1..=ladder::MAX_PAYLOAD).contains(&payload) && micros <= ladder::MAX_MICROS);
        }
    }
    if let Some(answer) = ladder::Answer::parse(data) {
        let again = ladder::Answer::parse(answer.emit().as_bytes());
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
    if let Some(text) = message.unreadable_boot_file() {
        assert!(text.contains(char::REPLACEMENT_CHARACTER) && message.boot_file().is_none());
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

/// A message that parses and is written again option by option, from what the accessors say, is the same; domain names alone may come in another form.
pub fn fuzz_dhcpv6(data: &[u8]) {
    let Ok(message) = dhcpv6::Message::parse(data) else {
        return;
    };
    let options = message.options;
    let mut writer = dhcpv6::Writer::new(message.kind, message.transaction_id);
    for (code, value) in options.iter() {
        rewrite(&mut writer, code, value);
    }
    assert_eq!(writer.finish(), data);
    for id in [options.client_id(), options.server_id()]
        .into_iter()
        .flatten()
    {
        assert!((3..=130).contains(&id.len()));
        assert!(dhcpv6::duid::uuid(id).is_none_or(|uuid| dhcpv6::duid::from_uuid(uuid) == id));
        assert!(dhcpv6::duid::mac(id).is_none_or(|mac| id.ends_with(&mac)));
    }
    if let Some(names) = options.domain_search() {
        assert!(names.iter().all(|name| (1..=253).contains(&name.len())));
        let mut writer = dhcpv6::Writer::new(message.kind, message.transaction_id);
        writer.domain_search(&names);
        let bytes = writer.finish();
        let again = dhcpv6::Message::parse(&bytes).map(|message| message.options.domain_search());
        assert_eq!(again, Ok(Some(names)));
    }
    for text in options
        .boot_file_url()
        .into_iter()
        .chain(options.boot_file_parameters().unwrap_or_default())
    {
        assert!(text.len() <= data.len());
    }
    let _ = (
        options.preference(),
        options.elapsed_time(),
        options.rapid_commit(),
        options.network_interface(),
        options.option_request().count(),
        options.architectures().count(),
    );
}

/// Writes one option of a checked message from what its accessors say, which do not see that it is one of several.
fn rewrite(writer: &mut dhcpv6::Writer, code: u16, value: &[u8]) {
    use dhcpv6::option;
    let mut alone = dhcpv6::Writer::new(dhcpv6::MessageType::Reply, 0);
    alone.option(code, value);
    let alone = alone.finish();
    let options = dhcpv6::Message::parse(&alone)
        .expect("an option of a message is a message's option")
        .options;
    match code {
        option::IA_NA => {
            let ia = options.ia_na().next().expect("checked with the message");
            writer.ia_na(&ia, |inner| {
                // Among the options of an association, only these two have a meaning.
                let mut addresses = ia.options.ia_addresses();
                for (code, value) in ia.options.iter() {
                    match code {
                        option::IA_ADDRESS => {
                            let address = addresses.next().expect("checked with the message");
                            let _ = address.options.status();
                            inner.ia_address(&address);
                        }
                        _ => {
                            inner.option(code, value);
                        }
                    }
                }
            });
        }
        option::STATUS_CODE => {
            writer.status(options.status());
        }
        option::DNS_SERVERS if options.dns_servers().next().is_some() => {
            let servers: Vec<_> = options.dns_servers().collect();
            writer.addresses(code, &servers);
        }
        option::OPTION_REQUEST if options.option_request().next().is_some() => {
            let words: Vec<_> = options.option_request().collect();
            writer.words(code, &words);
        }
        option::ARCHITECTURE if options.architectures().next().is_some() => {
            let words: Vec<_> = options.architectures().collect();
            writer.words(code, &words);
        }
        option::USER_CLASS if !options.user_classes().is_empty() => {
            writer.strings(code, &options.user_classes());
        }
        option::BOOT_FILE_PARAMETERS if options.boot_file_parameters().is_some() => {
            writer.strings(code, &options.boot_file_parameters().unwrap_or_default());
        }
        option::VENDOR_CLASS | option::VENDOR_OPTIONS => {
            if let Some(class) = options.vendor_classes().next() {
                writer.vendor_class(class.enterprise_number, &class.classes);
            } else if let Some((enterprise_number, own)) = options.vendor_options().next() {
                writer.vendor_options(enterprise_number, |inner| {
                    for (code, value) in own.iter() {
                        inner.option(code, value);
                    }
                });
            } else {
                writer.option(code, value);
            }
        }
        _ => {
            writer.option(code, value);
        }
    }
}

/// A boot option's path ends before its end node, and is a path of whole nodes; so is what of it leads to the interface.
pub fn fuzz_load_option(data: &[u8]) {
    let _ = load_option::order(data).count();
    let _ = NetworkBoot::of(data);
    let Some(option) = LoadOption::parse(data) else {
        return;
    };
    assert!(option.path.len() < data.len());
    if let Some(way) = NetworkBoot::of(option.path) {
        assert!(option.path.starts_with(way.interface));
        // An Ethernet address lies in it.
        assert!(way.interface.windows(6).any(|bytes| bytes == way.mac));
    }
}
