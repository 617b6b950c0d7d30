//! Where each field lies: as in the crate `r-efi` where that has the structure, else as the C declarations of UEFI 2.10 lay it out on x86-64
//! (natural alignment; UINTN, pointers and EFI_STATUS of eight bytes, enumerations of four; EFI_IPv4_ADDRESS, EFI_IPv6_ADDRESS and
//! EFI_MAC_ADDRESS of bytes; EFI_IP_ADDRESS with the alignment of UINT32). Those of `uefi-raw` of which we make tables are among them.

use super::managed_network as mnp;
use super::mtftp;
use super::pci_io::{PciIoAccess, PciIoConfigAccess, PciIoProtocol};
use super::pxe_callback::PxeBaseCodeCallbackProtocol;
use super::undi;
use core::mem::offset_of;
use r_efi::protocols as theirs;
use uefi_raw::protocol::driver::{DriverBindingProtocol, ServiceBindingProtocol};
use uefi_raw::protocol::network::http;
use uefi_raw::protocol::network::ip4::Ip4RouteTable;
use uefi_raw::protocol::network::ip4_config2 as ip4;
use uefi_raw::protocol::network::pxe;
use uefi_raw::protocol::network::snp;
use uefi_raw::table::boot::BootServices;
use uefi_raw::{Guid, IpAddress, MacAddress};

/// Ours and r-efi's are the same: size, alignment, and where the fields are.
macro_rules! same {
    ($ours:ty, $theirs:ty: $($field:ident $(= $other:ident)?),*) => {
        assert_eq!(
            (size_of::<$ours>(), align_of::<$ours>()),
            (size_of::<$theirs>(), align_of::<$theirs>()),
            stringify!($ours)
        );
        $(same!(@ $ours, $theirs, $field $(, $other)?);)*
    };
    (@ $ours:ty, $theirs:ty, $field:ident) => { same!(@ $ours, $theirs, $field, $field) };
    (@ $ours:ty, $theirs:ty, $field:ident, $other:ident) => {
        assert_eq!(
            offset_of!($ours, $field),
            offset_of!($theirs, $other),
            concat!(stringify!($ours), " ", stringify!($field))
        );
    };
}

/// Size, alignment, and where the fields are.
macro_rules! laid_out {
    ($ours:ty, $size:literal, $align:literal: $($field:ident $at:literal),*) => {
        assert_eq!(
            (size_of::<$ours>(), align_of::<$ours>()),
            ($size, $align),
            stringify!($ours)
        );
        $(assert_eq!(
            offset_of!($ours, $field),
            $at,
            concat!(stringify!($ours), " ", stringify!($field))
        );)*
    };
}

#[test]
fn snp_is_as_elsewhere() {
    use theirs::simple_network as other;
    same!(snp::SimpleNetworkProtocol, other::Protocol: revision, start, stop, initialize, reset, shutdown, receive_filters,
        station_address, statistics, multicast_ip_to_mac = mcast_ip_to_mac, non_volatile_data = nv_data, get_status, transmit, receive,
        wait_for_packet, mode);
    same!(snp::NetworkMode, other::Mode: state, hw_address_size, media_header_size, max_packet_size, nv_ram_size = nvram_size,
        nv_ram_access_size = nvram_access_size, receive_filter_mask, receive_filter_setting, max_mcast_filter_count, mcast_filter_count,
        mcast_filter, current_address, broadcast_address, permanent_address, if_type, mac_address_changeable, multiple_tx_supported,
        media_present_supported, media_present);
    same!(snp::NetworkStatistics, other::Statistics: rx_total_frames, rx_good_frames, rx_undersize_frames, rx_oversize_frames,
        rx_dropped_frames, rx_unicast_frames, rx_broadcast_frames, rx_multicast_frames, rx_crc_error_frames, rx_total_bytes,
        tx_total_frames, tx_good_frames, tx_undersize_frames, tx_oversize_frames, tx_dropped_frames, tx_unicast_frames,
        tx_broadcast_frames, tx_multicast_frames, tx_crc_error_frames, tx_total_bytes, collisions, unsupported_protocol,
        rx_duplicated_frames, rx_decrypt_error_frames, tx_error_frames, tx_retry_frames);
}

#[test]
fn mnp_is_as_elsewhere() {
    use theirs::managed_network as other;
    same!(mnp::ManagedNetworkProtocol, other::Protocol: get_mode_data, configure, mcast_ip_to_mac, groups, transmit, receive, cancel,
        poll);
    same!(mnp::ManagedNetworkConfigData, other::ConfigData: received_queue_timeout_value, transmit_queue_timeout_value,
        protocol_type_filter, enable_unicast_receive, enable_multicast_receive, enable_broadcast_receive, enable_promiscuous_receive,
        flush_queues_on_reset, enable_receive_timestamps, disable_background_polling);
    same!(mnp::ManagedNetworkReceiveData, other::ReceiveData: timestamp, recycle_event, packet_length, header_length, address_length,
        data_length, broadcast_flag, multicast_flag, promiscuous_flag, protocol_type, destination_address, source_address, media_header,
        packet_data);
    same!(mnp::ManagedNetworkTransmitData, other::TransmitData<1>: destination_address, source_address, protocol_type, data_length,
        header_length, fragment_count, fragment_table);
    same!(mnp::ManagedNetworkFragmentData, other::FragmentData: fragment_length, fragment_buffer);
    same!(mnp::ManagedNetworkCompletionToken, other::CompletionToken: event, status, packet);
}

#[test]
fn pci_io_and_bindings_are_as_elsewhere() {
    use theirs::{driver_binding, pci_io, service_binding};
    same!(PciIoProtocol, pci_io::Protocol: poll_mem, poll_io, mem, io, pci, copy_mem, map, unmap, allocate_buffer, free_buffer, flush,
        get_location, attributes, get_bar_attributes, set_bar_attributes, rom_size, rom_image);
    same!(PciIoAccess, pci_io::Access: read, write);
    same!(PciIoConfigAccess, pci_io::ConfigAccess: read, write);
    same!(ServiceBindingProtocol, service_binding::Protocol: create_child, destroy_child);
    same!(DriverBindingProtocol, driver_binding::Protocol: supported, start, stop, version, image_handle, driver_binding_handle);
    same!(BootServices, r_efi::system::BootServices: raise_tpl, restore_tpl, allocate_pool, free_pool, create_event, set_timer,
        signal_event, close_event, check_event, install_protocol_interface, reinstall_protocol_interface,
        uninstall_protocol_interface, handle_protocol, open_protocol, close_protocol, locate_handle_buffer);
    same!(Ip4RouteTable, theirs::ip4::RouteTable: subnet_addr = subnet_address, subnet_mask, gateway_addr = gateway_address);
    same!(MacAddress, r_efi::base::MacAddress:);
    same!(IpAddress, r_efi::base::IpAddress:);
}

#[test]
fn guids_are_as_elsewhere() {
    let pairs: [(Guid, r_efi::base::Guid); 6] = [
        (
            snp::SimpleNetworkProtocol::GUID,
            theirs::simple_network::PROTOCOL_GUID,
        ),
        (
            mnp::ManagedNetworkProtocol::GUID,
            theirs::managed_network::PROTOCOL_GUID,
        ),
        (
            mnp::MANAGED_NETWORK_SERVICE_BINDING,
            theirs::managed_network::SERVICE_BINDING_PROTOCOL_GUID,
        ),
        (PciIoProtocol::GUID, theirs::pci_io::PROTOCOL_GUID),
        (
            DriverBindingProtocol::GUID,
            theirs::driver_binding::PROTOCOL_GUID,
        ),
        (
            uefi_raw::protocol::device_path::DevicePathProtocol::GUID,
            theirs::device_path::PROTOCOL_GUID,
        ),
    ];
    for (ours, other) in pairs {
        assert_eq!(ours.to_bytes(), *other.as_bytes());
    }
    // Sections 24.3, 24.4, 24.2, 29.6, 28.5, 30.3 and 30.4.
    for (ours, text) in [
        (
            pxe::PxeBaseCodeProtocol::GUID,
            "03c4e603-ac28-11d3-9a2d-0090273fc14d",
        ),
        (
            PxeBaseCodeCallbackProtocol::GUID,
            "245dca21-fb7b-11d3-8f01-00a0c969723b",
        ),
        (
            undi::NetworkInterfaceIdentifierProtocol::GUID,
            "1aced566-76ed-4218-bc81-767f1f977a89",
        ),
        (
            http::HttpProtocol::GUID,
            "7a59b29b-910b-4171-8242-a85a0df25b5b",
        ),
        (
            http::HttpProtocol::SERVICE_BINDING_GUID,
            "bdc8e6af-d9bc-4379-a72a-e0c4e75dae1c",
        ),
        (
            ip4::Ip4Config2Protocol::GUID,
            "5b446ed1-e30b-4faa-871a-3654eca36080",
        ),
        (
            mtftp::MTFTP4_SERVICE_BINDING,
            "2fe800be-8f01-4aa6-946b-d71388e1833f",
        ),
        (mtftp::MTFTP4, "78247c57-63db-4708-99c2-a8b4a9a61f6b"),
        (
            mtftp::MTFTP6_SERVICE_BINDING,
            "d9760ff3-3cca-4267-80f9-7527fafa4223",
        ),
        (mtftp::MTFTP6, "bf0a78ba-ec29-49cf-a1c9-7ae54eab6a51"),
    ] {
        assert_eq!(ours.to_string(), text);
    }
}

#[test]
fn pxe_base_code_is_as_specified() {
    laid_out!(pxe::PxeBaseCodeProtocol, 112, 8: revision 0, start 8, stop 16, dhcp 24, discover 32, mtftp 40, udp_write 48, udp_read 56,
        set_ip_filter 64, arp 72, set_parameters 80, set_station_ip 88, set_packets 96, mode 104);
    laid_out!(pxe::PxeBaseCodeMode, 10424, 4: started 0, ipv6_available 1, ipv6_supported 2, using_ipv6 3, bis_supported 4,
        bis_detected 5, auto_arp 6, send_guid 7, dhcp_discover_valid 8, dhcp_ack_received 9, proxy_offer_received 10,
        pxe_discover_valid 11, pxe_reply_received 12, pxe_bis_reply_received 13, icmp_error_received 14, tftp_error_received 15,
        make_callbacks 16, ttl 17, tos 18, station_ip 20, subnet_mask 36, dhcp_discover 52, dhcp_ack 1524, proxy_offer 2996,
        pxe_discover 4468, pxe_reply 5940, pxe_bis_reply 7412, ip_filter 8884, arp_cache_entries 9016, arp_cache 9020,
        route_table_entries 9404, route_table 9408, icmp_error 9792, tftp_error 10296);
    laid_out!(pxe::PxeBaseCodePacket, 1472, 4: raw 0, dhcpv4 0, dhcpv6 0);
    laid_out!(pxe::PxeBaseCodeDhcpV4Packet, 296, 4: bootp_opcode 0, bootp_hw_type 1, bootp_hw_addr_len 2, bootp_gate_hops 3,
        bootp_ident 4, bootp_seconds 8, bootp_flags 10, bootp_ci_addr 12, bootp_yi_addr 16, bootp_si_addr 20, bootp_gi_addr 24,
        bootp_hw_addr 28, bootp_srv_name 44, bootp_boot_file 108, dhcp_magik 236, dhcp_options 240);
    laid_out!(pxe::PxeBaseCodeIpFilter, 132, 4: filters 0, ip_cnt 1, reserved 2, ip_list 4);
    laid_out!(pxe::PxeBaseCodeArpEntry, 48, 4: ip_addr 0, mac_addr 16);
    laid_out!(pxe::PxeBaseCodeRouteEntry, 48, 4: ip_addr 0, subnet_mask 16, gw_addr 32);
    laid_out!(pxe::PxeBaseCodeIcmpError, 504, 4: ty 0, code 1, checksum 2, u 4, data 8);
    laid_out!(pxe::PxeBaseCodeTftpError, 128, 1: error_code 0, error_string 1);
    // With a list of one in the specification.
    laid_out!(pxe::PxeBaseCodeDiscoverInfo, 24, 4: use_m_cast 0, use_b_cast 1, use_u_cast 2, must_use_list 3, server_m_cast_ip 4,
        ip_cnt 20, srv_list 24);
    laid_out!(pxe::PxeBaseCodeSrvlist, 20, 4: server_type 0, accept_any_response 2, reserved 3, ip_addr 4);
    laid_out!(pxe::PxeBaseCodeMtftpInfo, 24, 4: m_cast_ip 0, c_port 16, s_port 18, listen_timeout 20, transmit_timeout 22);
    laid_out!(PxeBaseCodeCallbackProtocol, 16, 8: revision 0, callback 8);
}

#[test]
fn http_is_as_specified() {
    laid_out!(http::HttpProtocol, 48, 8: get_mode_data 0, configure 8, request 16, cancel 24, response 32, poll 40);
    laid_out!(http::HttpConfigData, 24, 8: http_version 0, time_out_millisec 4, local_addr_is_ipv6 8, access_point 16);
    laid_out!(http::HttpV4AccessPoint, 12, 2: use_default_addr 0, local_address 1, local_subnet 5, local_port 10);
    laid_out!(http::HttpV6AccessPoint, 18, 2: local_address 0, local_port 16);
    laid_out!(http::HttpToken, 24, 8: event 0, status 8, message 16);
    laid_out!(http::HttpMessage, 40, 8: data 0, header_count 8, header 16, body_length 24, body 32);
    laid_out!(http::HttpRequestData, 16, 8: method 0, url 8);
    laid_out!(http::HttpResponseData, 4, 4: status_code 0);
    laid_out!(http::HttpHeader, 16, 8: field_name 0, field_value 8);
}

#[test]
fn mtftp_is_as_specified() {
    laid_out!(mtftp::MtftpProtocol, 64, 8: get_mode_data 0, configure 8, get_info 16, parse_options 24, read_file 32, write_file 40,
        read_directory 48, poll 56);
    laid_out!(mtftp::Mtftp4ConfigData, 26, 2: use_default_setting 0, station_ip 1, subnet_mask 5, local_port 10, gateway_ip 12,
        server_ip 16, initial_server_port 20, try_count 22, timeout_value 24);
    laid_out!(mtftp::Mtftp6ConfigData, 40, 2: station_ip 0, local_port 16, server_ip 18, initial_server_port 34, try_count 36,
        timeout_value 38);
    laid_out!(mtftp::MtftpToken, 104, 8: status 0, event 8, override_data 16, filename 24, mode_str 32, option_count 40, option_list 48,
        buffer_size 56, buffer 64, context 72, check_packet 80, timeout_callback 88, packet_needed 96);
    laid_out!(mtftp::MtftpOption, 16, 8: option_str 0, value_str 8);
}

#[test]
fn ip4_config2_is_as_specified() {
    laid_out!(ip4::Ip4Config2Protocol, 32, 8: set_data 0, get_data 8, register_data_notify 16, unregister_data_notify 24);
    laid_out!(ip4::Ip4Config2InterfaceInfo, 128, 8: name 0, if_type 64, hw_addr_size 68, hw_addr 72, station_addr 104, subnet_mask 108,
        route_table_size 112, route_table 120);
}

/// Appendix E packs the blocks of UNDI.
#[test]
fn undi_is_as_specified() {
    laid_out!(undi::NetworkInterfaceIdentifierProtocol, 40, 8: revision 0, id 8, image_addr 16, image_size 24, string_id 28,
        interface_type 32, major_ver 33, minor_ver 34, ipv6_supported 35, if_num 36);
    laid_out!(undi::PxeCdb, 32, 8: op_code 0, op_flags 2, cpb_size 4, db_size 6, cpb_addr 8, db_addr 16, stat_code 24, stat_flags 26,
        if_num 28, control 30);
    laid_out!(undi::PxeCpbStart, 64, 8: delay 0, block 8, virt2phys 16, mem_io 24, map_mem 32, unmap_mem 40, sync_mem 48, unique_id 56);
    laid_out!(undi::PxeDbGetInitInfo, 47, 1: memory_required 0, frame_data_len 4, link_speeds 8, nv_count 24, nv_width 28,
        media_header_len 30, hw_addr_len 32, mcast_filter_cnt 34, tx_buf_cnt 36, tx_buf_size 38, rx_buf_cnt 40, rx_buf_size 42, if_type 44,
        supported_duplex_modes 45, supported_loop_back_modes 46);
    laid_out!(undi::PxeCpbInitialize, 26, 1: memory_addr 0, memory_length 8, link_speed 12, tx_buf_cnt 16, tx_buf_size 18, rx_buf_cnt 20,
        rx_buf_size 22, duplex_mode 24, loop_back_mode 25);
    laid_out!(undi::PxeDbInitialize, 12, 4: memory_used 0, tx_buf_cnt 4, tx_buf_size 6, rx_buf_cnt 8, rx_buf_size 10);
    laid_out!(undi::PxeDbStationAddress, 96, 1: station_addr 0, broadcast_addr 32, permanent_addr 64);
    laid_out!(undi::PxeDbGetStatus, 264, 8: rx_frame_len 0, reserved 4, tx_buffer 8);
    laid_out!(undi::PxeCpbTransmit, 16, 8: frame_addr 0, data_len 8, mediaheader_len 12, reserved 14);
    laid_out!(undi::PxeCpbReceive, 16, 8: buffer_addr 0, buffer_len 8, reserved 12);
    laid_out!(undi::PxeDbReceive, 80, 4: src_addr 0, dest_addr 32, frame_len 64, protocol 68, media_header_len 70, frame_type 72,
        reserved 73);
}
