use super::*;
use alloc::vec;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn v4() -> IpConfig {
    let settings = Settings {
        addresses: vec![([10, 0, 0, 5].into(), 24)],
        gateways: vec![[10, 0, 0, 1].into()],
        dns: vec![[10, 0, 0, 2].into(), [10, 0, 0, 3].into()],
    };
    IpConfig::new(false, MAC, settings, None)
}

fn v6() -> IpConfig {
    let settings = Settings {
        addresses: vec![("fd00::5".parse().unwrap(), 64)],
        gateways: vec!["fe80::1".parse().unwrap()],
        dns: vec![],
    };
    IpConfig::new(true, MAC, settings, None)
}

#[test]
fn data_types_have_the_numbers_of_the_specification() {
    assert_eq!(Kind::of_v4(0), Some(Kind::Info));
    assert_eq!(Kind::of_v4(4), Some(Kind::Dns));
    assert_eq!(Kind::of_v6(4), Some(Kind::Address));
    assert_eq!(Kind::of_v6(6), Some(Kind::Dns));
    for number in [-1, 5, 7] {
        assert_eq!(Kind::of_v4(number), None);
    }
    assert_eq!((Kind::of_v6(7), Kind::of_v6(-1)), (None, None));
}

#[test]
fn what_is_there_is_read() {
    let config = v4();
    let get = |kind| config.get(kind, 0);
    assert_eq!(get(Kind::Policy), Ok(vec![0, 0, 0, 0]));
    assert_eq!(get(Kind::Address), Ok(vec![10, 0, 0, 5, 255, 255, 255, 0]));
    assert_eq!(get(Kind::Gateway), Ok(vec![10, 0, 0, 1]));
    assert_eq!(get(Kind::Dns), Ok(vec![10, 0, 0, 2, 10, 0, 0, 3]));
    let config = v6();
    assert_eq!(config.get(Kind::Dns, 0), Err(Refusal::NotFound));
    let address = config.get(Kind::Address, 0).unwrap();
    assert_eq!((address.len(), &address[14..]), (18, &[0, 5, 0, 64][..]));
    assert_eq!(
        config.get(Kind::AltInterfaceId, 0),
        Ok(vec![0, 0, 0, 0xff, 0xfe, 0, 0, 1])
    );
    assert_eq!(config.get(Kind::DupAddrDetect, 0), Ok(vec![1, 0, 0, 0]));
}

#[test]
fn the_interface_has_its_tables_behind_it() {
    let info = v4().get(Kind::Info, 0x1000).unwrap();
    assert_eq!(info[..10], *b"e\0t\0h\x000\0\0\0");
    assert_eq!(info[72..78], MAC);
    assert_eq!(info[104..112], [10, 0, 0, 5, 255, 255, 255, 0]);
    assert_eq!(info[112..120], 2_u64.to_le_bytes());
    assert_eq!(info[120..128], 0x1080_u64.to_le_bytes());
    assert_eq!(info[128..140], [10, 0, 0, 0, 255, 255, 255, 0, 0, 0, 0, 0]);
    assert_eq!(info[140..], [0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    let info = v6().get(Kind::Info, 0x1000).unwrap();
    assert_eq!(info[104..112], 1_u64.to_le_bytes());
    assert_eq!(info[112..120], 0x1088_u64.to_le_bytes());
    assert_eq!(info[120..128], 2_u64.to_le_bytes());
    assert_eq!(info[128..136], (0x1088_u64 + 17).to_le_bytes());
    assert_eq!((info[136], info[151], info[152]), (0xfd, 5, 64));
    assert_eq!(info.len(), 136 + 17 + 2 * 33);
    assert_eq!(
        (info[153 + 16], info[153 + 31], info[153 + 32]),
        (0xfd, 0, 64)
    );
    assert_eq!((info[186], info[201], info[218]), (0xfe, 1, 0));
}

#[test]
fn the_same_address_changes_nothing_and_another_does() {
    let mut config = v4();
    let same = config.set(Kind::Address, &[10, 0, 0, 5, 255, 255, 255, 0]);
    assert!(!same.unwrap().changed);
    let other = config.set(Kind::Address, &[10, 0, 0, 6, 255, 255, 0, 0]);
    assert!(other.unwrap().changed);
    assert_eq!(config.settings().addresses, [([10, 0, 0, 6].into(), 16)]);
    assert!(config.set(Kind::Gateway, &[10, 0, 0, 9]).unwrap().changed);
    assert!(config.set(Kind::Dns, &[]).unwrap().changed);
    assert_eq!(config.get(Kind::Dns, 0), Err(Refusal::NotFound));
    let mut config = v6();
    let entry = [
        Ipv6Addr::from_bits(7 | 0xfd << 120).octets().to_vec(),
        vec![0, 0],
    ]
    .concat();
    config.set(Kind::Address, &entry).unwrap();
    assert_eq!(
        config.settings().addresses,
        [("fd00::7".parse().unwrap(), 64)]
    );
}

#[test]
fn what_no_interface_can_have_is_refused() {
    let mut config = v4();
    let mut refusal = |kind, data: &[u8]| config.set(kind, data).err();
    assert_eq!(refusal(Kind::Info, &[]), Some(Refusal::WriteProtected));
    for data in [&[10, 0, 0, 1][..], &[0; 7], &[1; 16]] {
        let refused = refusal(Kind::Address, data);
        assert!(refused.is_some(), "{data:?}");
    }
    for mask in [[255, 0, 255, 0], [0; 4]] {
        let data = [[10, 0, 0, 1], mask].concat();
        assert_eq!(
            refusal(Kind::Address, &data),
            Some(Refusal::InvalidParameter)
        );
    }
    for host in [[0; 4], [224, 0, 0, 1], [127, 0, 0, 1], [255; 4]] {
        assert_eq!(
            refusal(Kind::Gateway, &host),
            Some(Refusal::InvalidParameter)
        );
    }
    let twice = [10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 1];
    assert_eq!(
        refusal(Kind::Gateway, &twice),
        Some(Refusal::InvalidParameter)
    );
    assert_eq!(refusal(Kind::Dns, &[1; 5]), Some(Refusal::BadBufferSize));
    assert_eq!(refusal(Kind::Dns, &[1; 68]), Some(Refusal::BadBufferSize));
    assert_eq!(refusal(Kind::Policy, &[0; 3]), Some(Refusal::BadBufferSize));
    assert_eq!(
        refusal(Kind::Policy, &[2, 0, 0, 0]),
        Some(Refusal::InvalidParameter)
    );
}

#[test]
fn under_dhcp_nothing_is_set_by_hand() {
    let mut config = v4();
    config.set(Kind::Policy, &[1, 0, 0, 0]).unwrap();
    for kind in [Kind::Address, Kind::Gateway, Kind::Dns] {
        assert_eq!(config.set(kind, &[]), Err(Refusal::WriteProtected));
    }
    assert_eq!(config.get(Kind::Policy, 0), Ok(vec![1, 0, 0, 0]));
    for kind in [Kind::Address, Kind::Gateway] {
        assert_eq!(config.get(kind, 0), Err(Refusal::NotFound));
    }
    // The address is there all the same.
    assert_eq!(config.settings().addresses, [([10, 0, 0, 5].into(), 24)]);
    assert_eq!(config.get(Kind::Dns, 0).unwrap().len(), 8);
    config.set(Kind::Policy, &[0; 4]).unwrap();
    config.set(Kind::Gateway, &[10, 0, 0, 8]).unwrap();
}

#[test]
fn who_wants_to_know_of_a_kind_is_told_of_that() {
    let mut config = v4();
    config.register(Kind::Gateway, 7).unwrap();
    config.register(Kind::Dns, 8).unwrap();
    assert_eq!(config.register(Kind::Dns, 8), Err(Refusal::AccessDenied));
    let change = config.set(Kind::Gateway, &[10, 0, 0, 1]).unwrap();
    assert_eq!(change.events, [7]);
    assert_eq!(config.unregister(Kind::Gateway, 8), Err(Refusal::NotFound));
    config.unregister(Kind::Gateway, 7).unwrap();
    assert_eq!(config.set(Kind::Gateway, &[]).unwrap().events, []);
    for event in 0..MOST_EVENTS - 1 {
        config.register(Kind::Policy, event).unwrap();
    }
    assert_eq!(config.register(Kind::Info, 1), Err(Refusal::OutOfResources));
}

#[test]
fn another_policy_is_news_of_all_that_it_is_about() {
    let mut config = v4();
    for (kind, event) in [(Kind::Address, 1), (Kind::Gateway, 2), (Kind::Dns, 3)] {
        config.register(kind, event).unwrap();
    }
    config.register(Kind::Policy, 4).unwrap();
    assert_eq!(config.set(Kind::Policy, &[0; 4]).unwrap().events, [4]);
    let change = config.set(Kind::Policy, &[1, 0, 0, 0]).unwrap();
    assert_eq!((change.events, change.changed), (vec![1, 2, 3, 4], false));
}

fn address(last: u8) -> Vec<u8> {
    vec![10, 0, 0, last, 255, 255, 255, 0]
}

fn stored(v6: bool, records: &[(Kind, &[u8])]) -> Option<Stored> {
    let mut stored = Stored::new(v6, MAC);
    for (kind, data) in records {
        stored.set(*kind, data);
    }
    Some(stored)
}

/// What the last change has the firmware keep.
fn kept(change: Change) -> Stored {
    Stored::read(false, &change.variable.unwrap()).unwrap()
}

#[test]
fn without_a_lease_the_firmwares_settings_are_told() {
    let menu = stored(
        false,
        &[
            (Kind::Address, &address(7)),
            (Kind::Gateway, &[10, 0, 0, 1]),
            (Kind::Dns, &[10, 0, 0, 3]),
        ],
    );
    let config = IpConfig::new(false, MAC, Settings::default(), menu.clone());
    assert_eq!(config.get(Kind::Policy, 0), Ok(vec![0; 4]));
    assert_eq!(config.get(Kind::Address, 0), Ok(address(7)));
    assert_eq!(config.get(Kind::Gateway, 0), Ok(vec![10, 0, 0, 1]));
    assert_eq!(config.get(Kind::Dns, 0), Ok(vec![10, 0, 0, 3]));
    assert_eq!(config.settings().addresses, [([10, 0, 0, 7].into(), 24)]);
    let by_dhcp = stored(
        false,
        &[(Kind::Policy, &[1, 0, 0, 0]), (Kind::Address, &address(7))],
    );
    let mut config = IpConfig::new(false, MAC, Settings::default(), by_dhcp);
    assert_eq!(config.get(Kind::Policy, 0), Ok(vec![1, 0, 0, 0]));
    assert_eq!(config.settings(), &Settings::default());
    assert_eq!(
        config.set(Kind::Address, &address(7)),
        Err(Refusal::WriteProtected)
    );
    // With one, they are not.
    let settings = v4().settings().clone();
    let config = IpConfig::new(false, MAC, settings, menu);
    assert_eq!(config.get(Kind::Address, 0), Ok(address(5)));
}

#[test]
fn what_no_interface_can_have_is_not_taken_from_the_firmware() {
    let broken = stored(
        false,
        &[
            (Kind::Policy, &[9, 0, 0, 0]),
            (Kind::Address, &[10, 0, 0, 1]),
            (Kind::Gateway, &[255; 4]),
            (Kind::Dns, &[10, 0, 0, 3]),
        ],
    );
    let mut config = IpConfig::new(false, MAC, Settings::default(), broken);
    assert_eq!(config.get(Kind::Policy, 0), Ok(vec![0; 4]));
    assert_eq!(config.get(Kind::Address, 0), Err(Refusal::NotFound));
    let change = config.set(Kind::Gateway, &[10, 0, 0, 1]).unwrap();
    let expected = stored(
        false,
        &[(Kind::Gateway, &[10, 0, 0, 1]), (Kind::Dns, &[10, 0, 0, 3])],
    );
    assert_eq!(Some(kept(change)), expected);
}

#[test]
fn what_a_caller_sets_is_kept_and_the_lease_is_not() {
    let mut config = v4();
    let same = config.set(Kind::Policy, &[0; 4]).unwrap();
    assert_eq!(same.variable, None);
    let change = config.set(Kind::Address, &address(5)).unwrap();
    assert!(!change.changed);
    assert_eq!(
        Some(kept(change)),
        stored(false, &[(Kind::Address, &address(5))])
    );
    let change = config.set(Kind::Policy, &[1, 0, 0, 0]).unwrap();
    let dhcp = stored(false, &[(Kind::Policy, &[1, 0, 0, 0])]);
    assert_eq!(Some(kept(change)), dhcp);
    // The firmware's network boot makes the policy static, which forgets the rest.
    let settings = v4().settings().clone();
    let mut config = IpConfig::new(false, MAC, settings, dhcp);
    assert_eq!(config.get(Kind::Policy, 0), Ok(vec![0; 4]));
    let change = config.set(Kind::Dns, &[10, 0, 0, 9]).unwrap();
    let expected = stored(false, &[(Kind::Dns, &[10, 0, 0, 9])]);
    assert_eq!(Some(kept(change)), expected);
}

#[test]
fn the_firmwares_identity_association_is_kept() {
    let mut before = stored(true, &[(Kind::DupAddrDetect, &[3, 0, 0, 0])]).unwrap();
    let bytes = before.write().unwrap();
    let mut config = IpConfig::new(true, [9; 6], Settings::default(), Some(before.clone()));
    assert_eq!(config.get(Kind::DupAddrDetect, 0), Ok(vec![3, 0, 0, 0]));
    let change = config.set(Kind::AltInterfaceId, &[5; 8]).unwrap();
    before.set(Kind::AltInterfaceId, &[5; 8]);
    let variable = change.variable.unwrap();
    assert_eq!(variable[..4], bytes[..4]);
    assert_eq!(Stored::read(true, &variable), Some(before));
}

/// UEFI 2.10, sections 28.5 and 28.7: Ip4Config2DataTypeManualAddress is one EFI_IP4_CONFIG2_MANUAL_ADDRESS; a prefix has 128 bits at most.
#[test]
fn one_address_of_ipv4_and_no_prefix_beyond_its_address() {
    let two = [address(5), address(6)].concat();
    let refused = v4().set(Kind::Address, &two);
    assert_eq!(refused, Err(Refusal::BadBufferSize));
    let mut entry = Ipv6Addr::from_bits(7 | 0xfd << 120).octets().to_vec();
    entry.extend([0, 129]);
    let refused = v6().set(Kind::Address, &entry);
    assert_eq!(refused, Err(Refusal::InvalidParameter));
    entry[17] = 128;
    assert!(v6().set(Kind::Address, &entry).is_ok());
}

/// EFI_IP4_CONFIG2_INTERFACE_INFO: IfType at 64, HwAddressSize at 68, StationAddress at 104, RouteTable at 120.
#[test]
fn the_interface_is_told_field_by_field() {
    let mut config = v4();
    config
        .set(Kind::Address, &[10, 0, 7, 5, 255, 255, 252, 0])
        .unwrap();
    let info = config.get(Kind::Info, 0x1000).unwrap();
    assert_eq!((info[64], &info[68..72]), (1, &[6, 0, 0, 0][..]));
    assert_eq!(info[128..136], [10, 0, 4, 0, 255, 255, 252, 0]);
    // Without an address there is no table, and nothing to point to.
    let config = IpConfig::new(false, MAC, Settings::default(), None);
    let info = config.get(Kind::Info, 0x1000).unwrap();
    assert_eq!((info.len(), &info[104..]), (128, &[0; 24][..]));
}
